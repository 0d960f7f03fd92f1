//===- TempDir.h - A directory for one test ---------------------*- C++ -*-===//
#ifndef MEGALITH_TEST_UNIT_CHECKPOINT_TEMPDIR_H
#define MEGALITH_TEST_UNIT_CHECKPOINT_TEMPDIR_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace megalith {

/// A new directory that is removed with everything in it.
class TempDir {
public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "megalith-XXXXXX").string();
    Path = mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(Path); }

  const std::string &path() const { return Path; }
  std::string write(const std::string &name, const std::string &content) const {
    std::string file = Path + "/" + name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

private:
  std::string Path;
};

} // namespace megalith

#endif
