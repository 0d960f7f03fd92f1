//===- CheckpointFolder.h - what people have in place of a checkpoint ------===//
#ifndef MEGALITH_LIB_CHECKPOINT_CHECKPOINTFOLDER_H
#define MEGALITH_LIB_CHECKPOINT_CHECKPOINTFOLDER_H

#include <string>
#include <vector>

namespace megalith {

/// A file or a folder that is taken for a checkpoint, and is none.
struct Mistaken {
  std::string path;
  std::string advice; ///< what it is, and what to do; "" when nothing is known of it
};

/// Of a file, by its name and its first bytes.
Mistaken mistakenFile(const std::string &path);
/// Of the first file (by name) in a folder that tells; or of the folder itself.
Mistaken mistakenFolder(const std::string &dir);

/// An adapter in a folder that has a whole model, too: others apply it.
Mistaken adapterBeside(const std::string &dir);

/// The files of safetensors in a folder without `model.safetensors` and its index.
struct OtherShards {
  std::vector<std::string> indices; ///< `*.safetensors.index.json`, by name
  std::vector<std::string> files;   ///< `*.safetensors`, by name
  /// `files` is NAME-00001-of-00003 to NAME-00003-of-00003, whole.
  bool isWhole = false;
  std::string missing; ///< a part of such a set that is not there
};
OtherShards otherShards(const std::string &dir);

} // namespace megalith

#endif
