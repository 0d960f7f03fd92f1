//===- RequestTable.h - the requests of a session -------------------------===//
//
// Of fixed capacity: a request keeps its number. A kernel takes the whole table when it starts.
// (Requests that join a kernel that runs are those of a LiveSession.)
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_API_REQUESTTABLE_H
#define MEGALITH_LIB_API_REQUESTTABLE_H

#include "megalith/Request.h"
#include <cstddef>
#include <unordered_set>

namespace megalith::api {

class RequestTable {
public:
  explicit RequestTable(size_t capacity) : most(capacity) {}

  size_t capacity() const { return most; }
  bool full() const { return all.size() >= most; }
  /// Whether a request has this id already.
  bool has(const RequestId &id) const { return ids.count(id.text) != 0; }
  /// The number of the request. There must be room, and the id a new one.
  size_t add(Request request) {
    ids.insert(request.id.text);
    all.push_back(std::move(request));
    return all.size() - 1;
  }
  const std::vector<Request> &requests() const { return all; }

private:
  size_t most;
  std::vector<Request> all;
  std::unordered_set<std::string> ids;
};

} // namespace megalith::api
#endif
