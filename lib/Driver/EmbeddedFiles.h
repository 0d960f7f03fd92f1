//===- EmbeddedFiles.h - the device code that the library carries -*- C++ -*-===//
#ifndef MEGALITH_LIB_DRIVER_EMBEDDEDFILES_H
#define MEGALITH_LIB_DRIVER_EMBEDDEDFILES_H

#include "llvm/ADT/ArrayRef.h"

namespace megalith::embedded {

struct File {
  const char *folder; ///< its last part: `cuda`, `cpu`; all others have what each target has
  const char *name, *text;
};

/// Written by cmake/embed.py: what lib/Driver/CMakeLists.txt finds.
llvm::ArrayRef<File> files();

} // namespace megalith::embedded

#endif
