#include "PipelineBase.h"
#include <regex>

using namespace megalith;
using namespace megalith::test;

namespace {

/// What a slip of the finger makes of the base pipeline. Each is one mistake, so each is one error.
const Edit mistakes[] = {
    // sections and keys
    {"models:", "model:"},
    {"params:", "parms:"},
    {"request:", "requests:"},
    {"states:", "state:"},
    {"\nkv:", "\nkvs:"},
    {"policies:", "polices:"},
    {"stages:", "stage:"},
    {"pages: 64", "page: 64"},
    {"outputs:", "output:"},
    {"    do: []", "    doo: []"},
    {"goto: COMMIT", "gotoo: COMMIT"},
    // names that are declared otherwise than they are used
    {"  target: {graph", "  targt: {graph"},
    {"  target: {pages", "  targt: {pages"},
    {"block: 4", "blok: 4"},
    {"rate: 0.5", "rte: 0.5"},
    {"draft: token[block]", "draft: token[blck]"},
    {"state: {ema: f32 = 0.8}", "state: {ema: f32 = initial}"},
    {"state: {ema: f32 = 0.8}", "state: {ema: f23 = 0.8}"},
    {"state: {ema: f32 = 0.8}", "state: {ena: f32 = 0.8}"},
    {"observe(good, ran)", "observe(god, ran)"},
    {"width: tiers", "wdth: tiers"},
    {"  size:", "  siz:"},
    {"  VERIFY: {slot", "  VERFY: {slot"},
    {"  VERIFY: {slot: true, next: [COMMIT]}\n", ""},
    {"next: [COMMIT]", "next: [COMIT]"},
    {"on: VERIFY", "on: VERFY"},
    {"goto: COMMIT", "goto: COMIT"},
    {"fault: FAILED", "fault: FAILD"},
    {"on: COMMIT", "on: VERIFY"},
    // names that are used otherwise than they are declared
    {"size.width, budget", "siz.width, budget"},
    {"size.width, budget", "size.wdth, budget"},
    {"size.observe", "size.observ"},
    {"- draft: ngram_lookup", "- drft: ngram_lookup"},
    {"- accepted: prefix", "- acepted: prefix"},
    {"- best: argmax", "- bst: argmax"},
    {"- ema: rate", "- emma: rate"},
    {"kv.target.keep", "kv.targt.keep"},
    {"kv.target.keep", "kv.target.kep"},
    {"kv.target.lag", "kv.target.lg"},
    {"prefix_while(", "prefix_wile("},
    {"append(draft", "apend(draft"},
    {"argmax(target(", "argmx(target("},
    {"argmax(target(", "argmax(targt("},
    {"[best[accepted]]", "[bst[accepted]]"},
    {"len(draft)", "len(drft)"},
    {"chunk=8", "chnk=8"},
    {"keep=none", "keep=nne"},
    {"kv=draft", "kv=drafts"},
    {"DONE if finished else VERIFY", "DONE if fnished else VERIFY"},
    // locals that only what is wrong reads
    {"- append(draft[:accepted] + [best[accepted]])",
     "- more: draft[:accepted]\n      - appended: apend(more + [best[accepted]])\n      - count: made += appended"},
    {"- append(draft[:accepted] + [best[accepted]])",
     "- more: draft[:accepted]\n      - append(more, more, [best[accepted]])"},
    {"- append(draft[:accepted] + [best[accepted]])", "- appended: append(best)\n      - count: made += apended"},
    {"- append(draft[:accepted] + [best[accepted]])", "- apended: append(best)\n      - count: made += appended"},
    {"- append(draft[:accepted] + [best[accepted]])",
     "- more: blok\n      - appended: append(best)\n      - count: made += appended"},
    {"- append(draft[:accepted] + [best[accepted]])",
     "- append(best)\n      - if: finished\n        do:\n          - more: 1\n      - count: made += more"},
    // names that cannot be assigned or declared
    {"- kv.target.keep", "- finished: true\n      - kv.target.keep"},
    {"- kv.target.keep", "- last: 3\n      - kv.target.keep"},
    {"- kv.target.keep", "- if: finished\n        do:\n          - budget: 0\n      - kv.target.keep"},
    {"- kv.target.keep", "- block: 3\n      - kv.target.keep"},
    {"- kv.target.keep", "- argmax: 3\n      - kv.target.keep"},
    {"accepted: i32 = 0", "accepted: i32 = 0\n  size: i32"},
    {"accepted: i32 = 0", "accepted: i32 = 0\n  target: i32"},
    {"accepted: i32 = 0", "accepted: i32 = 0\n  finished: bool"},
    {"rate: 0.5", "rate: 0.5\n  accepted: 1"},
    // states
    {"VERIFY: {slot: true, next", "VERIFY: {next"},
    {"PREFILL: {slot: true, next", "PREFILL: {next"},
    {"next: [VERIFY, DONE]", "next: [DONE]"},
    {"goto: DONE if finished else PREFILL", "goto: DONE"},
    {"QUEUED: {initial: true, next", "QUEUED: {next"},
    {"  FAILED: {terminal: true}\n", ""},
    {"  fault: FAILED\n", ""},
    {"DONE: {terminal: true}", "DONE: {}"},
    {"goto: DONE if finished else VERIFY", "goto: FAILED if finished else VERIFY"},
    // types and values
    {"accepted: i32 = 0", "accepted: i32 = 0.5"},
    {"block: 4", "block: [4, true]"},
    {"block: 4", "block: '[4, [8]]'"},
    {"- size.observe", "- for: i in 0..accepted + 70000\n        do: []\n      - size.observe"},
    {"- size.observe", "- x: map(i in 0..len(draft), drft[i])\n      - size.observe"},
    {"block: 4", "NULL: 4"},
    {"goto: COMMIT", "goto: ~"},
    {"rows_per_pass: 16", "rows_per_pass: 4"},
    {"target([last] + draft", "target(last + draft"},
    {"argmax(target([last] + draft, kv=draft))", "target([last] + draft, kv=draft)"},
    {"- target(tokens", "- if: finished\n        do:\n          - next: argmax(target([last]))\n"
                        "      - target(tokens"},
};

TEST(OneMistake, IsOneError) {
  for (const Edit &edit : mistakes) {
    const Check c = check({edit});
    EXPECT_FALSE(c.pipeline) << edit.from << " -> " << edit.to;
    EXPECT_EQ(c.errors, 1u) << edit.from << " -> " << edit.to << "\n" << c.messages;
  }
}

/// Puts what `messages` suggest where their error is. Empty when they suggest nothing.
std::string mended(const std::string &text, const std::string &messages) {
  std::smatch place, word;
  if (!std::regex_search(messages, place, std::regex("p.yaml:(\\d+):(\\d+): error")) ||
      !std::regex_search(messages, word, std::regex("did you mean `([^`]+)`")))
    return "";
  size_t at = 0;
  for (int line = std::stoi(place[1]); line > 1; --line)
    at = text.find('\n', at) + 1;
  at += std::stoi(place[2]) - 1;
  const bool dotted = word[1].str().find('.') != std::string::npos;
  size_t end = text.find_first_not_of(
      std::string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") + (dotted ? "." : ""), at);
  std::string out = text;
  return out.replace(at, end - at, word[1].str());
}

/// What is suggested is legal where it is suggested: there is no error at that place any more.
TEST(OneMistake, SuggestionsMendIt) {
  unsigned suggested = 0;
  for (const Edit &edit : mistakes) {
    const std::string text = edited({edit});
    const Check wrong = checkText(text);
    const std::string better = mended(text, wrong.messages);
    if (better.empty())
      continue;
    ++suggested;
    const Check c = checkText(better);
    const auto first = [](const std::string &messages) { return messages.substr(0, messages.find(": error")); };
    // A name that is declared wrongly is used several times.
    EXPECT_TRUE(c.pipeline || first(c.messages) != first(wrong.messages)) << wrong.messages << c.messages;
  }
  EXPECT_GT(suggested, 40u);
}

/// A state that no stage may go to, a function that has no place there: not suggested.
TEST(OneMistake, NothingForbiddenIsSuggested) {
  for (const Edit &edit :
       {Edit{"DONE if finished else VERIFY", "FAILD if finished else VERIFY"},
        Edit{"next: [VERIFY, DONE]", "next: [VERIFY, FAILD]"}, Edit{"on: COMMIT", "on: DOME"},
        Edit{"width: tiers(", "width: targt("}, Edit{"rate * ratio(good, ran)", "rate * apend(good)"},
        Edit{"block: 4", "block: scans(4)"}}) {
    const Check c = check({edit});
    EXPECT_FALSE(c.pipeline);
    EXPECT_EQ(c.messages.find("did you mean"), std::string::npos) << c.messages;
  }
}

} // namespace
