//===- Edits.h - what settings of requests change of their rows -----------===//
//
// The host's half of abi::Edits: what a kernel finds in LaunchParams::edits. Of a batch all of it is there before the
// launch. A live session has room for some, and its host puts in what a request needs before the request comes.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_RUNTIME_EDITS_H
#define MEGALITH_RUNTIME_EDITS_H

#include "device/Abi.h"
#include "megalith/Automata/TokenFormat.h"
#include "megalith/Request.h"
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <vector>

namespace megalith::runtime {

/// Whether some of what changes its rows goes by their text.
bool editsByText(const Sampling &sampling);

/// RequestEnd::format of an answer; empty: the request has no format.
std::string formatOf(const Request &request, const std::vector<int32_t> &answer);
/// The state of its format behind tokens that follow `state`. Those of `eos` are no text.
uint16_t walkFormat(const Request &request, uint16_t state, const std::vector<int32_t> &tokens);

/// An abi::TokenBytes.
std::vector<char> imageOf(const automata::TokenBytes &tokens);
/// An abi::Format, of tokens that stand at place `tokens`.
std::vector<char> imageOf(const automata::TokenFormat &format, int tokens);
/// An abi::Edits, of a request with edits whose format stands at place `format` (abi::kNone: it has none).
/// `vocabulary`: of the first model.
std::vector<char> editsOf(const Request &request, int format, int64_t vocabulary);

/// Which places are free in LaunchParams::edits. Images begin at multiples of 16 bytes.
class EditPlaces {
public:
  /// `bytes`: there are so many.
  explicit EditPlaces(size_t bytes);
  /// nullopt: there is no room now.
  std::optional<int> take(size_t bytes);
  void give(int place, size_t bytes);

private:
  std::map<int, int> free; ///< place and how many, in 16 bytes
};

/// The images of the requests that a kernel has. Requests share those of equal formats. A format that no request has
/// any more stays until its room is needed, and what tokens spell stays for good.
class EditImages {
public:
  /// Puts an image at a place. False: it could not.
  using Put = std::function<bool(int place, const std::vector<char> &image)>;
  EditImages(size_t bytes, int64_t vocabulary) : places(bytes), vocabulary(vocabulary) {}

  /// What a request with edits takes, also where it would share it with others.
  static size_t bytesOf(const Request &request, int64_t vocabulary);
  /// Puts in what the request needs. Its place; nullopt: there is no room now, or `put` could not.
  std::optional<int> add(const Request &request, const Put &put);
  /// A request has ended, of which add() gave `place`.
  void drop(int place);

private:
  struct OfFormat {
    int place;
    size_t bytes;
    int holders;
    std::shared_ptr<const automata::TokenFormat> format; ///< so that no other one gets its address
  };
  struct Held {
    size_t bytes;
    const automata::TokenFormat *format;
  };
  std::optional<int> put(const std::vector<char> &image, const Put &put);
  std::optional<int> hold(const std::shared_ptr<const automata::TokenFormat> &format, const Put &put);
  void release(const automata::TokenFormat *format);

  EditPlaces places;
  int64_t vocabulary;
  std::map<std::shared_ptr<const automata::TokenBytes>, int> tokens; ///< their places
  std::map<const automata::TokenFormat *, OfFormat> formats;
  std::list<const automata::TokenFormat *> unheld; ///< the one that was let go first is in front
  std::map<int, Held> held;
};

} // namespace megalith::runtime
#endif
