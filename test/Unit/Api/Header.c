/* megalith/megalith.h in C99, -Wpedantic -Werror: every struct with its initializer. */
#include "megalith/megalith.h"
#include <string.h>

const char *version_of_c(void);
megalith_code compile_of_c(const char *file, const char *text, megalith_errors **errors);

const char *version_of_c(void) { return megalith_version(); }

megalith_code compile_of_c(const char *file, const char *text, megalith_errors **errors) {
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  megalith_kernel_options kernel = MEGALITH_KERNEL_OPTIONS_INIT;
  megalith_run_options run = MEGALITH_RUN_OPTIONS_INIT;
  megalith_live_options live = MEGALITH_LIVE_OPTIONS_INIT;
  megalith_request request = MEGALITH_REQUEST_INIT;
  megalith_program *program = NULL;
  if (kernel.size != sizeof kernel || run.size != sizeof run || live.size != sizeof live ||
      request.size != sizeof request)
    return MEGALITH_INTERNAL;
  options.file = file;
  options.text = text;
  return megalith_program_compile(&options, &program, errors);
}
