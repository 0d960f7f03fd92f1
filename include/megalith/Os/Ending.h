//===- Ending.h - how the process ends --------------------------*- C++ -*-===//
//
// What a tool starts and writes on its way is registered (Process, TemporaryDirectory,
// TemporaryFile), so that it goes with the process however that ends: by a signal, by a
// fault of ours or of a library, or in the ordinary way. Only SIGKILL leaves something.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_OS_ENDING_H
#define MEGALITH_OS_ENDING_H

namespace megalith::os {

/// To be called first in main(), before any thread is started. From here on
///
///   INT, TERM, HUP, QUIT  end the tools that were started, remove what is temporary and
///                         then end the process, as they would have. One that is ignored
///                         stays ignored (`nohup`).
///   PIPE                  does the same: who reads our output has gone.
///   SEGV, BUS, ...        print one error, `input-changed` where a mapped file was cut,
///                         else `internal-error`; the exit status is 1.
///
/// And no file that is opened later becomes standard output where that was closed.
void endCleanly();

/// From now on the first INT or TERM does not end the process: interrupted() tells it, and what runs may come to an end
/// and say what it has. A second one ends the process as before.
void deferInterrupt();
/// The signal that came since; 0: none.
int interrupted();

/// Ends the process now, in any thread, whatever the others do. No destructors run, but
/// nothing registered stays. For errors that no caller can handle.
[[noreturn]] void endNow(int status);

/// Writes to standard error with system calls only: for handlers, and where memory is short.
void say(const char *text);

} // namespace megalith::os
#endif
