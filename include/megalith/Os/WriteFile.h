//===- WriteFile.h - a whole output at once ---------------------*- C++ -*-===//
#ifndef MEGALITH_OS_WRITEFILE_H
#define MEGALITH_OS_WRITEFILE_H

#include <string>
#include <string_view>

namespace megalith::os {

/// Writes a file that a user asked for: all of it or, after an error or a signal, nothing
/// of it, and what was there before stays. What is no regular file (a pipe, `/dev/stdout`)
/// is written to. Returns why it could not be done, or "".
std::string writeFile(const std::string &path, std::string_view data);

/// Writes after the end of a file, in one piece. A signal or a full disk may leave a part of it. Returns why it could
/// not be done, or "".
std::string appendFile(const std::string &path, std::string_view data);

} // namespace megalith::os
#endif
