/* The same in C: compiles a pipeline, loads its kernel, runs two requests and prints their
 * tokens. Then a pipeline with a mistake, whose error is data.
 *
 *   host_c PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]
 */
#include <megalith/megalith.h>

#include <stdio.h>
#include <string.h>

static int fail(megalith_code code, megalith_errors *errors) {
  fprintf(stderr, "%scode %d\n", megalith_errors_text(errors), (int)code);
  megalith_errors_free(errors);
  return 1;
}

static int device_of(const char *name) {
  return !strcmp(name, "cuda")        ? MEGALITH_CUDA
         : !strcmp(name, "cpu")       ? MEGALITH_CPU
         : !strcmp(name, "reference") ? MEGALITH_REFERENCE
                                      : MEGALITH_AUTO;
}

static megalith_request request_of(const char *id, const int32_t *tokens, size_t count, int64_t budget) {
  megalith_request request = MEGALITH_REQUEST_INIT;
  request.id = id;
  request.tokens = tokens;
  request.num_tokens = count;
  request.max_new_tokens = budget;
  return request;
}

static void print(const megalith_result *result) {
  size_t i;
  printf("%s:", result->id);
  for (i = 0; i < result->num_tokens; ++i)
    printf(" %d", (int)result->tokens[i]);
  printf(" (%s)\n", result->finish);
  fputs(megalith_errors_text(result->error), stderr); /* of one that ended in a fault */
}

static int run(const megalith_program *program, int device) {
  static const int32_t a[] = {5, 9, 17, 5, 9}, b[] = {42};
  megalith_kernel_options how = MEGALITH_KERNEL_OPTIONS_INIT;
  megalith_request requests[2];
  const megalith_results *results = NULL;
  megalith_kernel *kernel = NULL;
  megalith_errors *errors = NULL;
  megalith_code code;
  size_t i;
  how.device = device;
  requests[0] = request_of("a", a, 5, 6);
  requests[1] = request_of("b", b, 1, 4);
  code = megalith_kernel_load(program, &how, &kernel, &errors);
  if (!code)
    code = megalith_run(kernel, requests, 2, NULL, &results, &errors);
  megalith_kernel_free(kernel);
  if (code)
    return fail(code, errors);
  for (i = 0; i < results->num_requests; ++i)
    print(&results->requests[i]);
  megalith_results_free(results);
  return 0;
}

/* A text in place of a file. */
static int show_mistake(const megalith_pair *model) {
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  megalith_program *program = NULL;
  megalith_errors *errors = NULL;
  megalith_error error;
  megalith_note note;
  size_t i;
  options.file = "mistake.yaml";
  options.text = "pipeline: mistake\nstagse: {}\n";
  options.models = model;
  options.num_models = 1;
  if (megalith_program_compile(&options, &program, &errors) != MEGALITH_FAILED ||
      megalith_errors_get(errors, 0, &error))
    return 1;
  printf("kind: %s\nmessage: %s\nline: %u, column: %u\n", error.kind, error.message, error.line, error.column);
  for (i = 0; i < error.num_notes; ++i)
    if (!megalith_errors_note(errors, 0, i, &note))
      printf("note: %s\n", note.message);
  megalith_errors_free(errors);
  return 0;
}

int main(int argc, char **argv) {
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  megalith_program *program = NULL;
  megalith_errors *errors = NULL;
  megalith_pair model;
  megalith_code code;
  int status;
  if (argc < 3) {
    fprintf(stderr, "usage: %s PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]\n", argv[0]);
    return 2;
  }
  model.name = "";
  model.value = argv[2];
  options.file = argv[1];
  options.models = &model;
  options.num_models = 1;
  code = megalith_program_compile(&options, &program, &errors);
  if (code)
    return fail(code, errors);
  megalith_errors_free(errors); /* warnings, if any */
  status = run(program, argc > 3 ? device_of(argv[3]) : MEGALITH_AUTO);
  megalith_program_free(program);
  return status ? status : show_mistake(&model);
}
