//===- CodePath.h - where this code lies ------------------------*- C++ -*-===//
#ifndef MEGALITH_OS_CODEPATH_H
#define MEGALITH_OS_CODEPATH_H

#include <string>

namespace megalith::os {

/// The file that this code was loaded from, without links: the program, or a shared library. "" when the system does
/// not say.
std::string codePath();

} // namespace megalith::os
#endif
