//===- Export.h - what libmegalith shows to other programs ----------------===//
#ifndef MEGALITH_EXPORT_H
#define MEGALITH_EXPORT_H

/// Of a class or function that programs outside the library may use. Everything else in the
/// shared library is hidden.
#define MEGALITH_API __attribute__((visibility("default")))

#endif
