// A host program: compiles a pipeline, loads its kernel, runs two requests and prints their
// tokens. Then a pipeline with a mistake, whose error is data.
//
//   host_cpp PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]
#include <megalith/Api.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

using namespace megalith;

static int fail(const Messages &errors) {
  std::fputs(errors.text().c_str(), stderr);
  return 1;
}

static Device deviceOf(const char *name) {
  return !std::strcmp(name, "cuda")        ? Device::Cuda
         : !std::strcmp(name, "cpu")       ? Device::Cpu
         : !std::strcmp(name, "reference") ? Device::Reference
                                           : Device::Auto;
}

static void print(const RequestResult &result) {
  std::printf("%s:", result.id.text.c_str());
  for (int32_t token : result.tokens)
    std::printf(" %d", token);
  std::printf(" (%s)\n", result.finish.c_str());
}

/// The pipeline with a misspelt key. The file on disk stays as it is.
static int showMistake(const char *file, const char *checkpoint) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  ProgramOptions options;
  options.file = file;
  options.texts[file] = text.str() + "stagse: {}\n";
  options.models = {{"", checkpoint}};
  auto program = Program::compile(options);
  if (program)
    return 1;
  const Error error = program.errors().first();
  std::printf("kind: %s\nmessage: %s\nline: %u, column: %u\n", error.kind.c_str(), error.message.c_str(), error.line,
              error.column);
  for (const Note &note : error.notes)
    std::printf("note: %s\n", note.message.c_str());
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]\n", argv[0]);
    return 2;
  }
  auto program = Program::compile({.file = argv[1], .models = {{"", argv[2]}}});
  if (!program)
    return fail(program.errors());
  auto kernel = Kernel::load(*program, {.device = argc > 3 ? deviceOf(argv[3]) : Device::Auto});
  if (!kernel)
    return fail(kernel.errors());

  auto results = kernel->run(
      {{.id = "a", .tokens = {5, 9, 17, 5, 9}, .maxNewTokens = 6}, {.id = "b", .tokens = {42}, .maxNewTokens = 4}});
  if (!results)
    return fail(results.errors());
  for (const RequestResult &result : results->requests)
    print(result);
  return showMistake(argv[1], argv[2]);
}
