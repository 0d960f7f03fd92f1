#include "megalith/Support/Tool.h"
#include "megalith/Os/Ending.h"
#include "megalith/Support/Diagnostics.h"
#include "megalith/Text/Text.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>

namespace megalith {

template <typename... Args> static std::string lineOf(Diag id, const Args &...args) {
  return fmt::format("error: {} [{}]\n", fmt::format(fmt::runtime(diagInfo(id).text), args...), diagInfo(id).kebab);
}

/// Made before it is needed: then there is no memory for it.
static std::string &memoryLine() {
  static std::string line;
  return line;
}

static void sayInternal(const char *what) { os::say(lineOf(Diag::InternalError, text::printable(what, 2000)).c_str()); }

/// Says what the exception under way is.
static void sayException() {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    os::say(memoryLine().c_str());
  } catch (const std::length_error &) { // a size that no memory has
    os::say(memoryLine().c_str());
  } catch (const std::exception &error) {
    sayInternal(error.what());
  } catch (...) {
    sayInternal("an exception of an unknown kind");
  }
}

/// Whether all of standard output was written. Once it was not, nothing more is said of it.
static bool finishOutput() {
  llvm::raw_fd_ostream &out = llvm::outs();
  out.flush();
  if (!out.has_error())
    return true;
  const std::string reason = out.error().message();
  out.clear_error(); // else the destructor reports a fatal error
  os::say(lineOf(Diag::CannotWriteOutput, reason).c_str());
  return false;
}

static void atExit() {
  const bool ok = finishOutput();
  llvm::errs().clear_error(); // nobody is left to be told
  if (!ok)
    os::endNow(1);
}

int runTool(llvm::function_ref<int()> body) {
  os::endCleanly();
  memoryLine() =
      lineOf(Diag::OutOfMemory, "there is not enough memory; ask for less, or raise the limit (`ulimit -v`)");
  // Before atExit() is registered, so that they are there when it runs.
  llvm::outs();
  llvm::errs();
  std::atexit(atExit);
  llvm::install_fatal_error_handler([](void *, const char *reason, bool) {
    sayInternal(reason);
    os::endNow(1);
  });
  llvm::install_bad_alloc_error_handler([](void *, const char *, bool) {
    os::say(memoryLine().c_str());
    os::endNow(1);
  });
  // In a thread, or out of what must not throw.
  std::set_terminate([] {
    if (std::current_exception())
      sayException();
    else
      sayInternal("`std::terminate` was called");
    os::endNow(1);
  });
  int status = 1;
  try {
    status = body();
  } catch (...) {
    sayException();
  }
  return finishOutput() ? status : 1;
}

} // namespace megalith
