/*===- megalith.h - compile a pipeline, load its kernel, run requests: C -----===*
 *
 * megalith/Api.h for C99 and for whoever calls C. docs/library.md explains both.
 *
 *   Handles   are opaque. Each is given back with its `_free`, which takes NULL. A kernel keeps
 *             what it needs of its program, a session what it needs of its kernel.
 *   Codes     say how a call went. What is wrong in detail is data: `errors`, the last argument
 *             of the calls that can fail, gets a handle, whatever the code, or NULL when there
 *             is nothing to tell. It may be NULL itself.
 *   Options   are structs whose first member is their size: X_INIT fills in that and the defaults,
 *             which are those of C++. A library that is newer than the program has its defaults for
 *             members that the program does not know. One that is older refuses the struct
 *             (MEGALITH_BAD_ARGUMENT). A NULL pointer: all defaults.
 *   Texts     are UTF-8 or a user's bytes, end with a zero, and belong to the handle that they
 *             came from: they stay as long as it does.
 *   Threads   a program and its kernels are for one thread at a time. The calls of a live session, but for its
 *             `_free`, may be made on any thread, and at the same time.
 *
 * Nothing is thrown. docs/library.md says what the library does to the process that it is in.
 *===----------------------------------------------------------------------===*/
#ifndef MEGALITH_MEGALITH_H
#define MEGALITH_MEGALITH_H

#include <stddef.h>
#include <stdint.h>

#define MEGALITH_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** How a call went. */
typedef enum megalith_code {
  MEGALITH_OK = 0,
  MEGALITH_FAILED = 1,       /**< `errors` say why */
  MEGALITH_BAD_ARGUMENT = 2, /**< a NULL, a number out of its range, or a struct of another version */
  MEGALITH_NO_MEMORY = 3,
  MEGALITH_INTERNAL = 4 /**< a fault of the library; `errors` have it */
} megalith_code;

/** "0.2.0". */
MEGALITH_EXPORT const char *megalith_version(void);

/*===----------------------------------------------------------------------===*
 * Errors
 *===----------------------------------------------------------------------===*/

typedef struct megalith_errors megalith_errors;

/** One error or warning. */
typedef struct megalith_error {
  int warning;                   /**< 0: an error */
  const char *kind;              /**< stable: "unknown-key" */
  const char *message;           /**< one sentence without the place */
  const char *file;              /**< "": no place */
  unsigned line, column, length; /**< from 1; 0: no place. `column` and `length` count bytes */
  size_t num_notes;
  const char *text; /**< all of it, with the source line, for a terminal */
} megalith_error;

/** A second place, or advice. */
typedef struct megalith_note {
  const char *message, *file;
  unsigned line, column;
} megalith_note;

/** At most 20 errors and 20 warnings are kept. */
MEGALITH_EXPORT size_t megalith_errors_count(const megalith_errors *errors);
MEGALITH_EXPORT megalith_code megalith_errors_get(const megalith_errors *errors, size_t index, megalith_error *out);
MEGALITH_EXPORT megalith_code megalith_errors_note(const megalith_errors *errors, size_t index, size_t note,
                                                   megalith_note *out);
/** All of them as `megalith` prints them. */
MEGALITH_EXPORT const char *megalith_errors_text(const megalith_errors *errors);
MEGALITH_EXPORT void megalith_errors_free(megalith_errors *errors);

/*===----------------------------------------------------------------------===*
 * Program
 *===----------------------------------------------------------------------===*/

typedef struct megalith_program megalith_program;

typedef struct megalith_pair {
  const char *name, *value;
} megalith_pair;

typedef struct megalith_program_options {
  size_t size;
  const char *file;            /**< path of the pipeline */
  const char *text;            /**< its text, in place of what stands at `file`; NULL: read it */
  const megalith_pair *models; /**< name of a model ("": all others) and folder of its checkpoint */
  size_t num_models;
  const megalith_pair *params; /**< other values of the file's params */
  size_t num_params;
  const char *profile;     /**< device to plan for; NULL: that on which the kernel is loaded */
  const char *const *plan; /**< "key=value" each */
  size_t num_plan;
  const char *const *accept; /**< keys of config.json and tensors to take on your word */
  size_t num_accept;
  const megalith_pair *texts; /**< further texts in place of files, by path: model files */
  size_t num_texts;
  int without_weights; /**< 1: to look at, not to run */
} megalith_program_options;
#define MEGALITH_PROGRAM_OPTIONS_INIT {sizeof(megalith_program_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

MEGALITH_EXPORT megalith_code megalith_program_compile(const megalith_program_options *options, megalith_program **out,
                                                       megalith_errors **errors);
MEGALITH_EXPORT void megalith_program_free(megalith_program *program);
/** Of the pipeline. */
MEGALITH_EXPORT const char *megalith_program_name(megalith_program *program);
MEGALITH_EXPORT int64_t megalith_program_vocabulary(const megalith_program *program);

/** Says what each token spells in the middle of a text, for requests with a `format`: `bytes` of all tokens one after
 * the other, `lengths` of each of the `num_tokens`. 0: it is no part of a text (special tokens, padding), and tokens
 * behind the last one are none. A byte vocabulary needs it not. Not while a session is open. */
MEGALITH_EXPORT megalith_code megalith_program_set_token_bytes(megalith_program *program, const char *bytes,
                                                               const size_t *lengths, size_t num_tokens,
                                                               megalith_errors **errors);

/** What is made of it for its profile (h200 without one). `cuda` has all units of the kernel, one after the other. */
typedef struct megalith_source {
  const char *cuda, *manifest, *plan;
} megalith_source;
MEGALITH_EXPORT megalith_code megalith_program_source(megalith_program *program, megalith_source *out,
                                                      megalith_errors **errors);

/*===----------------------------------------------------------------------===*
 * Kernel
 *===----------------------------------------------------------------------===*/

typedef struct megalith_kernel megalith_kernel;

typedef enum megalith_device {
  MEGALITH_AUTO = 0,     /**< a GPU if there is one, else the reference executor */
  MEGALITH_CUDA = 1,     /**< NVRTC and the driver's linker, or the kernel cache */
  MEGALITH_CPU = 2,      /**< the CPU executor; the host's compiler, or the kernel cache */
  MEGALITH_REFERENCE = 3 /**< the reference executor */
} megalith_device;

typedef struct megalith_kernel_options {
  size_t size;
  int device;       /**< a megalith_device */
  int ordinal;      /**< of the GPU */
  int whole_kernel; /**< 1: compile it in one unit */
  int check;        /**< 1: on the CPU executor, runs can check every access to memory */
} megalith_kernel_options;
#define MEGALITH_KERNEL_OPTIONS_INIT {sizeof(megalith_kernel_options), MEGALITH_AUTO, 0, 0, 0}

MEGALITH_EXPORT megalith_code megalith_kernel_load(const megalith_program *program,
                                                   const megalith_kernel_options *options, megalith_kernel **out,
                                                   megalith_errors **errors);
MEGALITH_EXPORT void megalith_kernel_free(megalith_kernel *kernel);
/** Where it is; never MEGALITH_AUTO. */
MEGALITH_EXPORT megalith_device megalith_kernel_device(const megalith_kernel *kernel);
/** Whether it came out of the kernel cache. */
MEGALITH_EXPORT int megalith_kernel_cache_hit(const megalith_kernel *kernel);

/*===----------------------------------------------------------------------===*
 * Requests
 *===----------------------------------------------------------------------===*/

/** How tokens are drawn. */
typedef struct megalith_sampling {
  /* from Request.def: SAMPLING */
  float temperature; /**< 0 draws none: the best token has all the probability */
  int32_t top_k;     /**< tokens with the greatest logits; 0: all */
  float top_p;       /**< above 0, at most 1 */
  float min_p;       /**< from 0 to 1, of the greatest probability */
  /* --- */
  uint32_t seed; /**< of the request's random numbers, if `has_seed` is 1; else a hash of the id is it */
  int has_seed;
} megalith_sampling;

/** What changes logits by the text before them: docs/language.md, "Settings that follow the text". */
typedef struct megalith_edits {
  /* from Request.def: EDIT */
  float repetition_penalty; /**< 0.001 to 1000; logits of tokens in the text: above 0 divided, else multiplied by it */
  float presence_penalty;   /**< -10000 to 10000; taken from logits of tokens in the answer */
  float frequency_penalty;  /**< the same, as often as they are there */
  int32_t min_new_tokens;   /**< before so many nothing ends the answer but its budget */
  /* --- */
  const int32_t *bias_tokens; /**< whose logits `bias_values` are added to, -10000 to 10000; each token once, or
                                 MEGALITH_BAD_ARGUMENT */
  const float *bias_values;
  size_t num_bias;
  const int32_t *banned; /**< tokens that are never drawn */
  size_t num_banned;
  const int32_t *allowed; /**< no others are drawn; NULL: all may be */
  size_t num_allowed;
  const char *format; /**< what the answer has to be, JSON text: `{"regex": "[a-z]+"}`; NULL: anything. For byte
                         vocabularies: C has no call that says what tokens spell */
} megalith_edits;

/** What a request brings for an input of the pipeline: `count` values, 1 for a scalar, in the one of the two lists that
 *  is not NULL. Of an input of bools they are 0 and 1. A list without values may be NULL. Of a table each
 *  row's length stands in front of its values; one that goes beyond them is MEGALITH_BAD_ARGUMENT. */
typedef struct megalith_input {
  const char *name;
  const int32_t *integers; /**< of an i32, bool or token, or a sequence of these */
  const float *floats;     /**< of an f32, or a sequence of these */
  size_t count;
} megalith_input;

/** When the host's side of a run does something: not before this tick, nor before so many milliseconds of the run. One
 * of the two is 0. */
typedef struct megalith_when {
  int64_t tick, ms;
} megalith_when;

typedef struct megalith_request {
  size_t size;
  const char *id;
  const int32_t *tokens; /**< the prompt */
  size_t num_tokens;
  /* from Request.def: REQUEST */
  int64_t max_new_tokens; /**< the budget */
  int32_t priority;       /**< for the pipeline */
  int32_t deadline_ms;    /**< so long after its arrival it ends; 0: never */
  int64_t cache;          /**< finds pages of requests with the same number only; 0: the common one */
  /* --- */
  const int32_t *eos; /**< tokens that end it; NULL: the checkpoint's, unless `no_eos` is 1 */
  size_t num_eos;
  int no_eos;
  const int32_t *stop; /**< sequences of tokens that end it, too, one after the other; at most 16 of 1 to 32 tokens */
  const size_t *stop_lengths;   /**< how many tokens each has */
  size_t num_stop;              /**< how many sequences there are */
  const megalith_input *inputs; /**< one that has a default may be left out */
  size_t num_inputs;
  megalith_sampling sampling;
  megalith_when arrives;   /**< the kernel knows nothing of it before. Requests arrive in their order */
  megalith_when cancelled; /**< if `is_cancelled` is 1: the host takes it back then; not before it arrives */
  int is_cancelled;
  megalith_edits edits;
} megalith_request;
#define MEGALITH_EDITS_INIT {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define MEGALITH_REQUEST_INIT                                                                                          \
  {sizeof(megalith_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 1, 0, 0, 0}, {0, 0}, {0, 0}, 0,       \
   MEGALITH_EDITS_INIT}

/*===----------------------------------------------------------------------===*
 * Runs
 *===----------------------------------------------------------------------===*/

/** Who keeps the loop. Tokens and traces are the same. */
typedef enum megalith_control {
  MEGALITH_RESIDENT = 0, /**< the kernel */
  MEGALITH_HOST = 1,     /**< the host: a launch, a wait, and tokens and states read back for each tick */
  MEGALITH_GRAPH = 2     /**< the same with a CUDA graph; a GPU's */
} megalith_control;

typedef struct megalith_run_options {
  size_t size;
  /* from RunOptions.def: NUMBER, FLAG, TEXT */
  int64_t max_ticks; /**< ends the run after so many; 0: no limit */
  /** Ends a launch after so many, and launches again; 0: the kernel's loop has one launch, the host's one for each
   *  tick */
  int64_t ticks_per_launch;
  uint32_t seed; /**< of random numbers, beside each request's own */
  /** Seconds after which a GPU's kernel ends in which nothing moves; 0: never. Elsewhere an executor sees that by
   *  itself */
  double watchdog;
  int trace;       /**< give the trace of results */
  int kv_hash;     /**< with a hash of each row's K and V in it */
  int gauges;      /**< give the traced values of each result */
  int tick_times;  /**< give the times of ticks; on a GPU only */
  int logits;      /**< give the logits of each result */
  unsigned repeat; /**< to check the kernel: so many runs; tokens, logits, traces and KV must be equal bit for bit */
  uint32_t delay_seed;     /**< to check the kernel: random delays before waits; 0: none */
  const char *replay;      /**< to check the kernel: the text of a trace, whose tokens are taken and checked */
  const char *replay_name; /**< what messages call it */
  double replay_epsilon;   /**< how far a replayed token may be below the maximum */
  double replay_error;     /**< how far off logits may be for the value of another reducer */
  /** Of a checked kernel on the CPU executor: order of the threads, as `megalith run --schedule` has it */
  const char *schedule;
  /* --- */
  int control;            /**< a megalith_control */
  uint64_t shuffle_pages; /**< to check the kernel, if `has_shuffle_pages` is 1: deals KV pages in this random order */
  int has_shuffle_pages;
  void (*progress)(void *user, const char *what); /**< called with what is being done, "" when it is over */
  int (*interrupted)(void *user); /**< asked often, perhaps on another thread; 1 ends the run: requests that have not
                                   *   ended by then are "limit", and there is no trace */
  void *user;                     /**< of yours, for these two */
} megalith_run_options;
/* from RunOptions.def: INIT megalith_run_options, NUMBER, FLAG, TEXT + 0, 0, 0, 0, 0, 0 */
#define MEGALITH_RUN_OPTIONS_INIT                                                                                      \
  {sizeof(megalith_run_options), 0, 0, 0, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0.05, 0.05, 0, 0, 0, 0, 0, 0, 0}
/* --- */

typedef struct megalith_append {
  double at;      /**< when tokens were appended */
  int32_t tokens; /**< how many */
} megalith_append;
typedef struct megalith_gauge {
  const char *name;
  const double *values; /**< by tick */
  size_t num_values;
} megalith_gauge;
typedef struct megalith_count {
  const char *name;
  int64_t count;
} megalith_count;

/** What a run gave of one request, and how it ended. Times are milliseconds since the run began on a GPU, elsewhere
 *  ticks; one that never came is negative. */
typedef struct megalith_result {
  const char *id;
  const int32_t *tokens; /**< generated */
  size_t num_tokens;
  /* from RequestEnd.def: END */
  /** `stop` (an EOS or a stop sequence), `length` (the budget), `state` (the pipeline ended it), `cancelled`,
   *  `deadline`, `fault`, or `limit` (the run was cut off, or the session stopped at once) */
  const char *finish;
  const char *state;       /**< in which it ended */
  const char *fault;       /**< the code, with `fault` */
  const char *fault_state; /**< in which it happened */
  const char *place;       /**< FILE:LINE of the pipeline */
  /** Numbers of the fault in words, `position 7 holds token 5, and was fed 9`; some have none */
  const char *fault_detail;
  int64_t passes; /**< of models that it was in */
  int64_t rows;   /**< that it fed */
  int64_t found; /**< positions of its prompt that the first model's pool had in its index, so that they were not fed */
  const char *format; /**< of a request with a format: `complete` (the answer is one of its texts) or `partial` */
  /* --- */
  const megalith_errors *error; /**< why it ended with a fault or was cut off; NULL: it ended well */
  double arrived, admitted;
  const megalith_append *appends;
  size_t num_appends;
  const float *logits;          /**< when wanted: of each token a row of the first model's vocabulary */
  size_t num_logits;            /**< of all rows */
  const megalith_gauge *gauges; /**< when wanted */
  size_t num_gauges;
} megalith_result;

/** What a run gave. */
typedef struct megalith_results {
  const megalith_result *requests; /**< in the order in which they were given */
  size_t num_requests;
  const megalith_count *metrics; /**< of the pipeline */
  size_t num_metrics;
  int64_t ticks, passes, rows;
  int64_t launches; /**< of the kernel */
  struct {
    int64_t launches, graph_launches, synchronizations, copies, bytes;
  } calls; /**< what the host asked of a GPU's driver */
  double milliseconds;
  int interrupted;          /**< 1: megalith_run_options::interrupted ended it */
  const double *tick_times; /**< when wanted: of the begin of each tick, and one more of the end */
  size_t num_tick_times;
  const char *trace; /**< JSON lines, or "" */
} megalith_results;

/** Runs requests to their ends, on the calling thread. All have one `size`. One that can never run is an error, and
 *  then none runs. *out is the caller's, with all that it points to, until megalith_results_free. */
MEGALITH_EXPORT megalith_code megalith_run(const megalith_kernel *kernel, const megalith_request *requests,
                                           size_t num_requests, const megalith_run_options *options,
                                           const megalith_results **out, megalith_errors **errors);
MEGALITH_EXPORT void megalith_results_free(const megalith_results *results);

/*===----------------------------------------------------------------------===*
 * Calls of pipelines of buffers
 *===----------------------------------------------------------------------===*/

typedef enum megalith_element {
  MEGALITH_I32 = 0,
  MEGALITH_I64 = 1,
  MEGALITH_F32 = 2,
  MEGALITH_BOOL = 3, /**< a byte */
  MEGALITH_F16 = 4,
  MEGALITH_BF16 = 5
} megalith_element;

/** A buffer that a call brings: row-major, without gaps. */
typedef struct megalith_buffer {
  const char *name;
  void *data;           /**< of the GPU that the kernel was loaded on; of the host for the other executors */
  int element;          /**< a megalith_element */
  const int64_t *shape; /**< `dimensions` sizes */
  size_t dimensions;
} megalith_buffer;

/** Calls a pipeline of buffers with all its buffers, also those that its stages write. On a GPU it is one launch on
 *  `stream` (a CUstream or cudaStream_t; NULL: the default one): nothing is allocated or waited for, and a call may be
 *  captured into a graph. `per_stage` 1: a launch for each stage. The other executors have ended when it returns. One
 *  thread at a time. */
MEGALITH_EXPORT megalith_code megalith_call(const megalith_kernel *kernel, const megalith_buffer *buffers,
                                            size_t num_buffers, void *stream, int per_stage, megalith_errors **errors);
/** Waits for what the stream has been given, and fails with the first fault of all calls since it was last asked. */
MEGALITH_EXPORT megalith_code megalith_check(const megalith_kernel *kernel, void *stream, megalith_errors **errors);

/*===----------------------------------------------------------------------===*
 * Live session: requests while the kernel runs
 *===----------------------------------------------------------------------===*/

typedef struct megalith_live megalith_live;

typedef struct megalith_live_options {
  size_t size;
  /* from LiveOptions.def: NUMBER */
  size_t places; /**< requests in the kernel's table */
  size_t queue;  /**< requests that wait on the host for a place in it */
  /** Of a request, its prompt and its budget together; 0: as many as the pipeline's pools and the models' positions
   *  allow, at most 8192 */
  int64_t max_tokens;
  int64_t max_ends; /**< words that the tokens and sequences which end a request take together */
  size_t ring;      /**< news that the kernel can be ahead of the host, a power of two */
  uint32_t seed;    /**< of random numbers, beside each request's own */
  /** Seconds after which a GPU's kernel ends in which nothing moves; 0: never. Waiting for the host is no standstill */
  double watchdog;
  int64_t idle_ms; /**< the kernel ends when nothing was to do for so long; below 0: never */
  /** Rows of logits in memory of the host, each a vocabulary of floats: one for each token that requests with
   *  logprobs may still generate, and where they ask for those of their prompts one for each token of these but the
   *  first. Such a request waits until there are as many. 0: no request may ask for them */
  int64_t logit_lines;
  /** Of a kernel whose pipeline has settings that change rows of logits: memory of the device for them. Requests
   *  with equal formats share theirs. One for which there is no room now waits */
  size_t edit_bytes;
  /** Keeps a trace: so many bytes of memory for ticks, of the device where a kernel runs there, and of the host for
   *  requests, at least 4096. The session goes on when it is full, without a trace. 0: none */
  size_t trace;
  /* --- */
  void (*progress)(void *user, const char *what); /**< as a run has it */
  void *user;
} megalith_live_options;
/* from LiveOptions.def: INIT megalith_live_options, NUMBER + 0, 0 */
#define MEGALITH_LIVE_OPTIONS_INIT                                                                                     \
  {sizeof(megalith_live_options), 256, 4096, 0, 64, 1024, 0, 10, 10000, 0, 67108864, 0, 0, 0}
/* --- */

/** The kernel is the session's until it is stopped. */
MEGALITH_EXPORT megalith_code megalith_live_open(const megalith_kernel *kernel, const megalith_live_options *options,
                                                 megalith_live **out, megalith_errors **errors);
/** Stops at once. No other thread may be in a call of the session. Events and stats that were given out stay. */
MEGALITH_EXPORT void megalith_live_free(megalith_live *session);

/** Hands a request over, which arrives now: its `arrives` and `cancelled` are not set. Without an `id` its number is
 *  it. Waits `milliseconds` at most for room. Its number, from 0, goes to `number`, which may be NULL; `user` comes
 * back with its events. `logprobs`: these tell of each token its logprob, and so many of the likeliest ones, up to 20;
 * -1: they do not. `prompt_logprobs`: the same of the tokens of its prompt. With them a budget of 0 asks for nothing
 * else. */
MEGALITH_EXPORT megalith_code megalith_live_submit(megalith_live *session, const megalith_request *request,
                                                   uint64_t user, int64_t milliseconds, int logprobs,
                                                   int prompt_logprobs, uint64_t *number, megalith_errors **errors);

/** How a request ended. */
typedef struct megalith_live_end {
  /* from RequestEnd.def: END, LIVE_END */
  /** `stop` (an EOS or a stop sequence), `length` (the budget), `state` (the pipeline ended it), `cancelled`,
   *  `deadline`, `fault`, or `limit` (the run was cut off, or the session stopped at once) */
  const char *finish;
  const char *state;       /**< in which it ended */
  const char *fault;       /**< the code, with `fault` */
  const char *fault_state; /**< in which it happened */
  const char *place;       /**< FILE:LINE of the pipeline */
  /** Numbers of the fault in words, `position 7 holds token 5, and was fed 9`; some have none */
  const char *fault_detail;
  int64_t passes; /**< of models that it was in */
  int64_t rows;   /**< that it fed */
  int64_t found; /**< positions of its prompt that the first model's pool had in its index, so that they were not fed */
  const char *format;    /**< of a request with a format: `complete` (the answer is one of its texts) or `partial` */
  int64_t prompt_tokens; /**< of its prompt */
  int64_t generated;     /**< new tokens */
  double submitted;      /**< in milliseconds since the session opened, as the next ones; negative: it never came */
  double admitted;       /**< it took a slot for the first time */
  double first_token;    /**< it had its first token */
  double ended;          /**< it ended */
  /* --- */
} megalith_live_end;

typedef struct megalith_choice {
  int32_t token;
  double logprob;
} megalith_choice;
/** How likely a token was: natural logarithms of what the softmax of its row of logits gives, before temperature and
 *  all else by which tokens are drawn. */
typedef struct megalith_logprob {
  double logprob;                   /**< if `rank` is not 0; else no row of the model predicted the token */
  int64_t rank;                     /**< 1 for the likeliest token, and so on */
  const megalith_choice *likeliest; /**< the first first; as many as were asked for */
  size_t num_likeliest;
} megalith_logprob;

/** What is new of a request. */
typedef struct megalith_live_event {
  uint64_t request, user;
  const int32_t *tokens; /**< new ones */
  size_t num_tokens;
  const megalith_logprob *logprobs; /**< of each of `tokens`, if the request asked for them */
  size_t num_logprobs;
  const megalith_logprob *prompt_logprobs; /**< of each token of the prompt, if it asked for them; once */
  size_t num_prompt_logprobs;
  const char *state;            /**< that it is in now */
  const megalith_live_end *end; /**< NULL: it goes on */
  double at;                    /**< milliseconds since the session opened */
  uint64_t device_ns;           /**< when the kernel told that: nanoseconds of a GPU's clock; 0: there is none */
  int64_t found; /**< positions of its prompt that the first model's pool had in its index; known when it has a slot */
} megalith_live_event;
/** The next event, waiting for it `milliseconds` at most. *out is NULL when there is none. It is the caller's, with all
 *  that it points to, until megalith_live_event_free. */
MEGALITH_EXPORT megalith_code megalith_live_next(megalith_live *session, int64_t milliseconds,
                                                 const megalith_live_event **out, megalith_errors **errors);
MEGALITH_EXPORT void megalith_live_event_free(const megalith_live_event *event);

/** Takes a request back. It ends as "cancelled", unless it has ended by then. */
MEGALITH_EXPORT megalith_code megalith_live_cancel(megalith_live *session, uint64_t request, megalith_errors **errors);
/** Takes no more requests, and waits until all have ended, or, with `now` 1, ends them: "limit". Events stay to be
 * read. */
MEGALITH_EXPORT megalith_code megalith_live_stop(megalith_live *session, int now, megalith_errors **errors);
/** 1: the session was stopped or has failed, and megalith_live_next has given out all. */
MEGALITH_EXPORT int megalith_live_done(const megalith_live *session);

typedef struct megalith_live_slot {
  int taken; /**< 0: all else is nothing */
  uint64_t request;
  const char *state;
  int64_t prompt_tokens, generated, kv_tokens;
} megalith_live_slot;
typedef struct megalith_live_pool {
  const char *model;
  int64_t pages, used;
  int64_t cached; /**< of these that are not used, those of the index; -1: the pool has none */
} megalith_live_pool;
typedef struct megalith_increments {
  const char *name;     /**< of a metric */
  const int64_t *times; /**< how often a `count` added 0, 1, ... to it; the last one is of that and more */
  size_t num_times;
} megalith_increments;
/** A session as it stands. Counts are since it opened. */
typedef struct megalith_stats {
  /* from LiveStats.def: STAT */
  size_t waiting;           /**< requests on the host, without a place */
  size_t running;           /**< requests in the kernel's table that have not ended */
  int64_t ticks;            /**< of the kernel */
  int64_t passes;           /**< of models */
  int64_t rows;             /**< that were fed */
  int64_t prompt_tokens;    /**< of requests that got a place */
  int64_t generated_tokens; /**< that requests were told */
  int64_t launches;         /**< of the kernel */
  int launched;             /**< a kernel is on the device now */
  size_t device_bytes;      /**< of the table and the rings; on the device of the trace, too */
  size_t host_bytes;        /**< the same on the host */
  /* --- */
  const megalith_live_slot *slots;
  size_t num_slots;
  const megalith_live_pool *pools;
  size_t num_pools;
  const megalith_count *ended; /**< requests, by how they finished */
  size_t num_ended;
  const megalith_count *metrics; /**< of the pipeline */
  size_t num_metrics;
  const megalith_increments *increments;
  size_t num_increments;
} megalith_stats;
/** *out is the caller's, with all that it points to, until megalith_stats_free. */
MEGALITH_EXPORT megalith_code megalith_live_stats(const megalith_live *session, const megalith_stats **out,
                                                  megalith_errors **errors);
MEGALITH_EXPORT void megalith_stats_free(const megalith_stats *stats);

/** What a session did, as two files of JSON lines. `megalith run PIPELINE --requests R.jsonl --replay T.jsonl` goes
 * through it again and checks it. */
typedef struct megalith_live_trace {
  const char *trace;
  const char *requests; /**< that arrived, in their order, as the kernel saw them */
} megalith_live_trace;
/** Of a session with `trace` that was stopped. *out is the caller's, until megalith_live_trace_free. */
MEGALITH_EXPORT megalith_code megalith_live_take_trace(const megalith_live *session, const megalith_live_trace **out,
                                                       megalith_errors **errors);
MEGALITH_EXPORT void megalith_live_trace_free(const megalith_live_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
