// Requests while the kernel runs: the second one is submitted when the first one has its first token. Prints what each
// gave.
//
//   live_cpp PIPELINE.yaml CHECKPOINT [cuda|cpu|reference]
#include <megalith/LiveSession.h>

#include <cstdio>
#include <cstring>

using namespace megalith;
using namespace std::chrono_literals;

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
  auto session = LiveSession::open(*kernel);
  if (!session)
    return fail(session.errors());

  struct Answer {
    std::vector<int32_t> tokens;
    std::string finish;
  };
  Answer answers[2];
  // `user` comes back with the events of a request: here it says whose they are.
  auto first = session->submit({.id = "a", .tokens = {5, 9, 17, 5, 9}, .maxNewTokens = 6}, 0);
  if (!first)
    return fail(first.errors());
  for (bool second = false; answers[0].finish.empty() || answers[1].finish.empty();) {
    auto event = session->next(1s);
    if (!event)
      return fail(event.errors());
    if (!*event)
      continue; // nothing new within a second
    Answer &answer = answers[(*event)->user];
    answer.tokens.insert(answer.tokens.end(), (*event)->tokens.begin(), (*event)->tokens.end());
    if ((*event)->end)
      answer.finish = (*event)->end->finish;
    if (!second && !answer.tokens.empty()) {
      second = true;
      auto number = session->submit({.id = "b", .tokens = {42}, .maxNewTokens = 4}, 1);
      if (!number)
        return fail(number.errors());
    }
  }
  if (auto stopped = session->stop(); !stopped)
    return fail(stopped.errors());
  for (const Answer &answer : answers) {
    std::printf("%c:", &answer == answers ? 'a' : 'b');
    for (int32_t token : answer.tokens)
      std::printf(" %d", token);
    std::printf(" (%s)\n", answer.finish.c_str());
  }
}
