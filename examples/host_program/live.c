/* The same in C: the second request is submitted when the first one has its first token.
 *
 *   live_c PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]
 */
#include <megalith/megalith.h>

#include <stdio.h>
#include <string.h>

static int device_of(const char *name) {
  return !strcmp(name, "cuda")        ? MEGALITH_CUDA
         : !strcmp(name, "cpu")       ? MEGALITH_CPU
         : !strcmp(name, "reference") ? MEGALITH_REFERENCE
                                      : MEGALITH_AUTO;
}

struct answer {
  int32_t tokens[8];
  size_t count;
  char finish[16]; /* "": it goes on */
};

static megalith_code submit(megalith_live *session, const char *id, const int32_t *tokens, size_t count, int64_t budget,
                            uint64_t user, megalith_errors **errors) {
  megalith_request request = MEGALITH_REQUEST_INIT;
  request.id = id;
  request.tokens = tokens;
  request.num_tokens = count;
  request.max_new_tokens = budget;
  return megalith_live_submit(session, &request, user, 0, -1, -1, NULL, errors);
}

/* Until both have ended. */
static megalith_code converse(megalith_live *session, struct answer answers[2], megalith_errors **errors) {
  static const int32_t a[] = {5, 9, 17, 5, 9}, b[] = {42};
  int second = 0;
  megalith_code code = submit(session, "a", a, 5, 6, 0, errors);
  while (!code && (!answers[0].finish[0] || !answers[1].finish[0])) {
    const megalith_live_event *event;
    struct answer *answer;
    size_t i;
    code = megalith_live_next(session, 1000, &event, errors);
    if (code || !event)
      continue; /* nothing new within a second */
    answer = &answers[event->user];
    for (i = 0; i < event->num_tokens && answer->count < 8; ++i)
      answer->tokens[answer->count++] = event->tokens[i];
    if (event->end)
      strncpy(answer->finish, event->end->finish, sizeof answer->finish - 1);
    megalith_live_event_free(event);
    if (!second && answer->count) {
      second = 1;
      code = submit(session, "b", b, 1, 4, 1, errors);
    }
  }
  return code ? code : megalith_live_stop(session, 0, errors);
}

int main(int argc, char **argv) {
  megalith_program_options options = MEGALITH_PROGRAM_OPTIONS_INIT;
  megalith_kernel_options how = MEGALITH_KERNEL_OPTIONS_INIT;
  megalith_program *program = NULL;
  megalith_kernel *kernel = NULL;
  megalith_live *session = NULL;
  megalith_errors *errors = NULL;
  megalith_pair model;
  megalith_code code;
  static struct answer answers[2];
  int i;
  size_t k;
  if (argc < 3) {
    fprintf(stderr, "usage: %s PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]\n", argv[0]);
    return 2;
  }
  model.name = "";
  model.value = argv[2];
  options.file = argv[1];
  options.models = &model;
  options.num_models = 1;
  how.device = argc > 3 ? device_of(argv[3]) : MEGALITH_AUTO;
  code = megalith_program_compile(&options, &program, &errors);
  if (!code) {
    megalith_errors_free(errors); /* warnings, if any */
    code = megalith_kernel_load(program, &how, &kernel, &errors);
  }
  if (!code) {
    megalith_errors_free(errors);
    code = megalith_live_open(kernel, NULL, &session, &errors);
  }
  if (!code)
    code = converse(session, answers, &errors);
  megalith_live_free(session);
  megalith_kernel_free(kernel);
  megalith_program_free(program);
  if (code) {
    fprintf(stderr, "%scode %d\n", megalith_errors_text(errors), (int)code);
    megalith_errors_free(errors);
    return 1;
  }
  for (i = 0; i < 2; ++i) {
    printf("%c:", 'a' + i);
    for (k = 0; k < answers[i].count; ++k)
      printf(" %d", (int)answers[i].tokens[k]);
    printf(" (%s)\n", answers[i].finish);
  }
  return 0;
}
