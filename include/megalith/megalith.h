/*===- megalith.h - compile a pipeline, load its kernel, run requests: C -----===*
 *
 * megalith/Api.h for C99 and for whoever calls C. docs/library.md explains both.
 *
 *   Handles   are opaque. Each is given back with its `_free`, which takes NULL. A kernel keeps
 *             what it needs of its program, a session what it needs of its kernel.
 *   Codes     say how a call went. What is wrong in detail is data: `errors`, the last argument
 *             of the calls that can fail, gets a handle, whatever the code, or NULL when there
 *             is nothing to tell. It may be NULL itself.
 *   Options   are structs whose first member is their size: X_INIT fills it in. A library that
 *             is newer than the program takes the members that it does not have as 0. One that
 *             is older refuses the struct (MEGALITH_BAD_ARGUMENT). A NULL pointer: all defaults.
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

/** What is made of it for its profile (h200 without one). `cuda` has both units of the kernel, one behind the other. */
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
  int device;  /**< a megalith_device */
  int ordinal; /**< of the GPU */
} megalith_kernel_options;
#define MEGALITH_KERNEL_OPTIONS_INIT {sizeof(megalith_kernel_options), MEGALITH_AUTO, 0}

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

/** How tokens are drawn. A temperature of 0 draws none. */
typedef struct megalith_sampling {
  float temperature; /**< 0 or above */
  int32_t top_k;     /**< 0: all */
  float top_p;       /**< above 0, at most 1; 0 stands for 1 */
  float min_p;       /**< from 0 to 1 */
  uint32_t seed;     /**< of the request's random numbers, if `has_seed` is 1; else a hash of the id is it */
  int has_seed;
} megalith_sampling;

/** What a request brings for an input of the pipeline: `count` values, 1 for a scalar, in the one of the two lists that
 *  is not NULL. Of an input of bools they are 0 and 1. A list without values may be NULL. */
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
  int64_t max_new_tokens;
  const int32_t *eos; /**< tokens that end it; NULL: the checkpoint's, unless `no_eos` is 1 */
  size_t num_eos;
  int no_eos;
  int32_t priority;
  const megalith_input *inputs; /**< one that has a default may be left out */
  size_t num_inputs;
  megalith_sampling sampling;
  megalith_when arrives;   /**< the kernel knows nothing of it before. Requests arrive in their order */
  megalith_when cancelled; /**< if `is_cancelled` is 1: the host takes it back then; not before it arrives */
  int is_cancelled;
  int32_t deadline_ms; /**< so long after its arrival it ends; 0: never */
  const int32_t *stop; /**< sequences of tokens that end it, too, one behind the other; at most 16 of 1 to 32 tokens */
  const size_t *stop_lengths; /**< how many tokens each has */
  size_t num_stop;            /**< how many sequences there are */
} megalith_request;
#define MEGALITH_REQUEST_INIT                                                                                          \
  {sizeof(megalith_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0}, {0, 0}, {0, 0}, 0, 0, 0, 0, 0}

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
  int64_t max_ticks;        /**< ends the run after so many; 0: no limit */
  double watchdog_seconds;  /**< 0: 10; negative: never */
  int trace;                /**< 1: keep the trace */
  int control;              /**< a megalith_control */
  int64_t ticks_per_launch; /**< ends a launch after so many, and launches again; 0: `control` says when */
  uint32_t seed;            /**< of random numbers, beside each request's own */
} megalith_run_options;
#define MEGALITH_RUN_OPTIONS_INIT {sizeof(megalith_run_options), 0, 0, 0, 0, 0, 0}

/** How a request ended. */
typedef struct megalith_result {
  const char *id;
  const int32_t *tokens;
  size_t num_tokens;
  const char *finish; /**< "stop", "length", "state", "cancelled", "deadline", "fault" or "limit" */
  const char *state;  /**< in which it ended */
  const char *fault;  /**< the code, or "" */
  const char *place;  /**< FILE:LINE of the fault, or "" */
  int64_t passes, rows;
  const char *fault_detail;     /**< numbers of the fault in words, or "" */
  const megalith_errors *error; /**< why it ended with a fault or was cut off; NULL: it ended well */
} megalith_result;

/** What a run gave. */
typedef struct megalith_results {
  const megalith_result *requests; /**< in the order in which they were given */
  size_t num_requests;
  int64_t ticks, passes, rows;
  double milliseconds;
  const char *trace; /**< JSON lines, or "" */
} megalith_results;

/** Runs requests to their ends, on the calling thread. All have one `size`. One that can never run is an error, and
 *  then none runs. *out is the caller's, with all that it points to, until megalith_results_free. */
MEGALITH_EXPORT megalith_code megalith_run(const megalith_kernel *kernel, const megalith_request *requests,
                                           size_t num_requests, const megalith_run_options *options,
                                           const megalith_results **out, megalith_errors **errors);
MEGALITH_EXPORT void megalith_results_free(const megalith_results *results);

/*===----------------------------------------------------------------------===*
 * Live session: requests while the kernel runs
 *===----------------------------------------------------------------------===*/

typedef struct megalith_live megalith_live;

typedef struct megalith_live_options {
  size_t size;
  size_t places; /**< requests in the kernel's table; 0: 256 */
  size_t queue;  /**< requests that wait for a place in it; 0: 4096 */
  int64_t
      max_tokens; /**< of a request, its prompt and its budget together; 0: what pools and models allow, at most 8192 */
  int64_t max_ends;        /**< words that the tokens which end a request take; 0: 64 */
  size_t ring;             /**< news that the kernel can be ahead of the host, a power of two; 0: 1024 */
  uint32_t seed;           /**< of random numbers, beside each request's own */
  double watchdog_seconds; /**< 0: 10; negative: never */
  int64_t idle_ms;         /**< the kernel ends when nothing was to do for so long; 0: 10000; negative: never */
  size_t trace;            /**< keeps a trace, of so many bytes for ticks and as many for requests; 0: none */
} megalith_live_options;
#define MEGALITH_LIVE_OPTIONS_INIT {sizeof(megalith_live_options), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** The kernel is the session's until it is stopped. */
MEGALITH_EXPORT megalith_code megalith_live_open(const megalith_kernel *kernel, const megalith_live_options *options,
                                                 megalith_live **out, megalith_errors **errors);
/** Stops at once. No other thread may be in a call of the session. Events and stats that were given out stay. */
MEGALITH_EXPORT void megalith_live_free(megalith_live *session);

/** Hands a request over, which arrives now: its `arrives` and `cancelled` are not set. Without an `id` its number is
 * it. Waits `milliseconds` at most for room. Its number, from 0, goes to `number`, which may be NULL; `user` comes back
 * with its events. */
MEGALITH_EXPORT megalith_code megalith_live_submit(megalith_live *session, const megalith_request *request,
                                                   uint64_t user, int64_t milliseconds, uint64_t *number,
                                                   megalith_errors **errors);

/** How a request ended. */
typedef struct megalith_live_end {
  const char *finish; /**< "stop", "length", "state", "cancelled", "deadline", "fault" or "limit" */
  const char *state;  /**< in which it ended */
  const char *fault;  /**< the code, or "" */
  const char *fault_state;
  const char *place; /**< FILE:LINE of the fault, or "" */
  int64_t prompt_tokens, generated, passes, rows;
  /** Milliseconds since the session opened; negative: it never came. */
  double submitted, admitted, first_token, ended;
  const char *fault_detail; /**< numbers of the fault in words, or "" */
} megalith_live_end;

/** What is new of a request. */
typedef struct megalith_live_event {
  uint64_t request, user;
  const int32_t *tokens; /**< new ones */
  size_t num_tokens;
  const char *state;            /**< that it is in now */
  const megalith_live_end *end; /**< NULL: it goes on */
  double at;                    /**< milliseconds since the session opened */
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
} megalith_live_pool;
typedef struct megalith_live_count {
  const char *name;
  int64_t count;
} megalith_live_count;
/** A session as it stands. Counts are since it opened. */
typedef struct megalith_stats {
  size_t waiting, running; /**< requests without a place, and those with one */
  const megalith_live_slot *slots;
  size_t num_slots;
  const megalith_live_pool *pools;
  size_t num_pools;
  int64_t ticks, passes, rows, prompt_tokens, generated_tokens;
  const megalith_live_count *ended; /**< requests, by how they finished */
  size_t num_ended;
  const megalith_live_count *metrics; /**< of the pipeline */
  size_t num_metrics;
  int64_t launches; /**< of the kernel */
  int launched;     /**< 1: a kernel is on the device now */
  size_t device_bytes, host_bytes;
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
