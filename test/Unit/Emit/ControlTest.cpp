#include "../../../device/Abi.h"
#include "ControlTesting.h"
#include <nlohmann/json.hpp>
#include <sstream>

TEST(EmitControl, ConstantsComeFromParamsPoolAndModel) {
  const std::string text = emitted({});
  for (const char *line : {"static constexpr int slots = 4;", "static constexpr int rowsPerPass = 16;",
                           "static constexpr int vocab = 100;", "static constexpr int pages = 32;",
                           "static constexpr bool failWhenFull = false;", "static constexpr int reserve = -1; //",
                           "static constexpr int rowsBeyond = 9; //", "static constexpr int callTokens = 16; //",
                           "static constexpr unsigned long long slotStates = 0x6; // VERIFY COMMIT",
                           "static constexpr unsigned long long terminalStates = 0x18; // DONE FAILED",
                           "static constexpr int faultState = 4; // FAILED"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(EmitControl, ABoundOfPromptsIsAConstantWhereItBounds) {
  for (const char *rows : {"16", "9"}) {
    std::string text = Pipeline().text();
    text.insert(text.find("  param @slots"),
                std::string("  param @rows_beside {type = \"i32\", value = ") + rows + "}\n");
    const auto module = parsed(text);
    ASSERT_TRUE(module);
    CodeWriter w;
    emit::emitControl(w, *module, nullptr, {});
    EXPECT_EQ(w.text().find("rowsBeside") == std::string::npos, rows == std::string("16"));
  }
}

TEST(EmitControl, AWindowIsAConstantWhereThereIsOne) {
  Pipeline p;
  const std::string plain = p.text(), whole = emitted(p);
  EXPECT_EQ(whole.find("kvWindow"), std::string::npos);
  std::string text = plain;
  text.replace(text.find("kv_layers = 1, "), 15, "kv_layers = 1, kv_window = 24, ");
  const auto module = parsed(text);
  ASSERT_TRUE(module);
  CodeWriter w;
  emit::emitControl(w, *module, nullptr, {});
  EXPECT_NE(w.text().find("static constexpr int kvWindow = 24;"), std::string::npos);
}

TEST(EmitControl, StatesHaveATable) {
  EXPECT_NE(emitted({}).find("//   state   flags     next\n"
                             "//   QUEUED  initial   VERIFY\n"
                             "//   VERIFY  slot      COMMIT\n"
                             "//   COMMIT  slot      VERIFY DONE\n"
                             "//   DONE    terminal\n"
                             "//   FAILED  terminal\n"
                             "enum class State : int {\n"
                             "  QUEUED = 0,\n"),
            std::string::npos);
}

TEST(EmitControl, FieldsAreDeclaredUnderIdentifiers) {
  EXPECT_NE(emitted({}).find("struct Fields {\n"
                             "  ::megalith::device::Sequence<8> draft;\n"
                             "  int accepted;\n"
                             "  float size_ema; // size.ema\n"
                             "};\n"
                             "struct Request : megalith::abi::RequestOf<1> {\n"
                             "  Fields fields;\n"
                             "  __device__ bool fieldsInRange() const { return fields.draft.inRange(); }\n"
                             "};\n"),
            std::string::npos);
}

/// A module whose requests bring these.
static Pipeline withInputs() {
  Pipeline p;
  p.declarations += "  input @rates {capacity = 5000, numbers = [0.5], optional, type = \"f32\"} @0:11:3\n"
                    "  input @flags {capacity = 9, type = \"bool\"} @0:11:3\n"
                    "  input @tenant {least = 0, most = 15, type = \"i32\"} @0:11:3\n"
                    "  input @\"a.text\" {capacity = 5000, type = \"token\"} @0:11:3\n"
                    "  input @share {init = 0.25, optional, type = \"f32\"} @0:11:3\n"
                    "  input @few {capacity = 4, items = [7], optional, type = \"token\"} @0:11:3\n";
  return p;
}

TEST(EmitControl, InputsStandAfterTheFields) {
  Pipeline p = withInputs();
  p.commit = R"(      %tenant = input.get @tenant : i32 @0:27:9
      %one = const {value = 1} : i32 @0:27:9
      %next = add(%tenant, %one) : i32 @0:27:9
      field.set @accepted(%next) @0:27:9
      %text = input.get @"a.text" : token<> @0:27:9
      %few = input.get @few : token<4> @0:27:9
      %part = seq.slice(%text, %tenant, %next) : token<8> @0:27:9
      field.set @draft(%part) @0:27:9
      %rates = input.get @rates : f32<> @0:28:9
      %flags = input.get @flags : bool<9> @0:28:9
      %rate = seq.at(%rates, %tenant) : f32 @0:28:9
      %flag = seq.at(%flags, %tenant) : bool @0:28:9
      %half = const {value = 0.5} : f32 @0:28:9
      %most = select(%flag, %rate, %half) : f32 @0:28:9
      field.set @"size.ema"(%most) @0:28:9
      %n = append(%few) : i32 @0:28:9
      %m = append(%text) : i32 @0:28:9
      goto {to = ["DONE"]} @0:29:9
)";
  const std::string text = emitted(p);
  EXPECT_NE(text.find("struct Inputs {\n"
                      "  ::megalith::abi::InputRange rates;\n"
                      "  ::megalith::abi::InputRange flags;\n"
                      "  int tenant;\n"
                      "  ::megalith::abi::InputRange a_text; // a.text\n"
                      "  float share;\n"
                      "  ::megalith::abi::InputRange few;\n"
                      "};\n"
                      "struct Request : megalith::abi::RequestOf<1> {\n"
                      "  Fields fields;\n"
                      "  Inputs inputs;\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(bodyOf(text, "commit"), "  Fields &r = t.r.fields;\n"
                                    "  const int next = t.r.inputs.tenant + 1;\n"
                                    "  t.set(r.accepted, next);\n"
                                    "  const auto text = t.input(t.r.inputs.a_text);\n"
                                    "  t.set(r.draft, t.slice(text, t.r.inputs.tenant, next));\n"
                                    "  const float rate = t.at(t.input<float>(t.r.inputs.rates), t.r.inputs.tenant);\n"
                                    "  t.set(r.size_ema, t.at(t.input<bool>(t.r.inputs.flags), t.r.inputs.tenant) ? "
                                    "rate : 0.5f);\n"
                                    "  t.append(t.input(t.r.inputs.few));\n"
                                    "  t.append(text);\n"
                                    "  t.goTo(State::DONE);\n")
      << "nothing wraps, for the tenant is at most 15";
}

TEST(EmitControl, ValuesUsedOnceAreWrittenWhereTheyAreUsed) {
  EXPECT_EQ(bodyOf(emitted({}), "verifyIssue"),
            "  Fields &r = t.r.fields;\n"
            "  const auto tokens = t.tokens();\n"
            "  t.issue<calls::Verify>(t.concat(t.list(t.at(tokens, tokens.size() - 1)), r.draft));\n");
}

TEST(EmitControl, LoopsBecomeOneCallWithATest) {
  Pipeline p;
  p.results = R"(      %best = results @target {index = 0, site = 0} : token<9> @0:23:9
      %d = field.get @draft : token<8> @0:24:9
      %n = seq.len(%d) : i32 @0:24:9
      %acc = prefix_while(%n) : i32 @0:24:9 {
        ^(%i : i32):
        %x = seq.at(%d, %i) : token @0:24:9
        %y = seq.at(%best, %i) : token @0:24:9
        %q = eq(%x, %y) : bool @0:24:9
        yield(%q) @0:24:9
      }
      field.set @accepted(%acc) @0:24:9
)";
  EXPECT_EQ(bodyOf(emitted(p), "verifyResume"), "  Fields &r = t.r.fields;\n"
                                                "  const auto best = t.results();\n"
                                                "  const int acc = t.prefixWhile(r.draft.size(), "
                                                "[&](int i) { return t.at(r.draft, i) == t.at(best, i); });\n"
                                                "  t.set(r.accepted, acc);\n"
                                                "  t.goTo(State::COMMIT);\n");
}

TEST(EmitControl, AValueReadBeforeAWriteKeepsItsVariable) {
  EXPECT_EQ(commitOf(R"(      %old = field.get @accepted : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      %sum = add(%old, %c2) : i32 @0:27:9
      field.set @accepted(%c2) @0:27:9
      count.add @committed(%sum) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int sum = t.wrapAdd(r.accepted, 2);\n"
            "  t.set(r.accepted, 2);\n"
            "  t.count(Metric::committed, sum);\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, AViewThatOutlivesItsFieldIsCopied) {
  EXPECT_EQ(commitOf(R"(      %old = field.get @draft : token<8> @0:27:9
      %c0 = const {value = 0} : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      %head = seq.slice(%old, %c0, %c2) : token<8> @0:27:9
      %tail = seq.slice(%old, %c2, %c2) : token<8> @0:27:9
      field.set @draft(%head) @0:27:9
      %n = append(%tail) : i32 @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const auto old = t.hold(r.draft);\n"
            "  const auto tail = t.slice(old, 2, 2);\n"
            "  t.set(r.draft, t.slice(old, 0, 2));\n"
            "  t.append(tail);\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, BudgetIsReadOnItsSideOfAnAppend) {
  EXPECT_EQ(commitOf(R"(      %b = budget : i32 @0:27:9
      %d = field.get @draft : token<8> @0:27:9
      %n = append(%d) : i32 @0:27:9
      %c = budget : i32 @0:28:9
      %used = sub(%b, %c) : i32 @0:28:9
      count.add @committed(%used) @0:28:9
      count.add @committed(%n) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int b = t.budget();\n"
            "  const int n = t.append(r.draft);\n"
            "  t.count(Metric::committed, b - t.budget());\n"
            "  t.count(Metric::committed, n);\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, AnIndexIsCheckedEvenWhereCppWouldNotEvaluateIt) {
  EXPECT_EQ(commitOf(R"(      %d = field.get @draft : token<8> @0:27:9
      %a = field.get @accepted : i32 @0:27:9
      %c5 = const {value = 5} : i32 @0:27:9
      %in = lt(%a, %c5) : bool @0:27:9
      %x = seq.at(%d, %a) : token @0:27:9
      %c7 = const {value = 7} : token @0:27:9
      %same = eq(%x, %c7) : bool @0:27:9
      %both = and(%in, %same) : bool @0:27:9
      goto(%both) {to = ["VERIFY", "DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const bool same = t.at(r.draft, r.accepted) == 7;\n"
            "  t.goTo(r.accepted < 5 && same ? State::VERIFY : State::DONE);\n");
}

/// `#line` gives a fault the line of its statement; what stands on another one says so.
TEST(EmitControl, AnIndexOfAnotherLineNamesIt) {
  const std::string text = R"(      %d = field.get @draft : token<8> @0:27:9
      %a = field.get @accepted : i32 @0:27:9
      %x = seq.at(%d, %a) : token @0:27:9
      %c1 = const {value = 1} : i32 @0:28:9
      %y = seq.at(%d, %c1) : token @0:28:9
      %both = seq.make(%x, %y) : token<2> @0:28:9
      field.set @draft(%both) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)";
  EXPECT_EQ(commitOf(text), "  Fields &r = t.r.fields;\n"
                            "  t.set(r.draft, t.list(t.at(r.draft, r.accepted, 27), t.at(r.draft, 1)));\n"
                            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, AValueThatIsUsedTwiceHasAVariable) {
  const std::string tier = R"( = field.get @accepted : i32 @0:27:9
)";
  EXPECT_EQ(commitOf("      %a" + tier + R"(      %c4 = const {value = 4} : i32 @0:27:9
      %x = min(%a, %c4) : i32 @0:27:9
      count.add @committed(%x) @0:27:9
      field.set @accepted(%x) @0:28:9
      %c = field.get @accepted : i32 @0:28:9
      %e4 = const {value = 4} : i32 @0:28:9
      %z = min(%c, %e4) : i32 @0:28:9
      trace @"size.block"(%z) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int x = t.min(r.accepted, 4);\n"
            "  t.count(Metric::committed, x);\n"
            "  t.set(r.accepted, x);\n"
            "  t.trace(Gauge::size_block, t.min(r.accepted, 4));\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, BranchesKeepTheirStatements) {
  EXPECT_EQ(commitOf(R"(      %a = field.get @accepted : i32 @0:27:9
      %c0 = const {value = 0} : i32 @0:27:9
      %some = gt(%a, %c0) : bool @0:27:9
      if(%some) @0:27:9 {
        field.set @accepted(%c0) @0:28:9
      }, {
        count.add @committed(%a) @0:28:9
      }
      goto {to = ["DONE"]} @0:29:9
)"),
            "  Fields &r = t.r.fields;\n"
            "  const int a = r.accepted;\n"
            "  if (r.accepted > 0) {\n"
            "    t.set(r.accepted, 0);\n"
            "  }\n"
            "  else {\n"
            "    t.count(Metric::committed, a);\n"
            "  }\n"
            "  t.goTo(State::DONE);\n");
}

TEST(EmitControl, PartsRunInTheOrderOfTheTick) {
  const std::string text = emitted({});
  EXPECT_EQ(bodyOf(text, "controlTicks"), "  Control &c = controlOfCta<Control>();\n"
                                          "  for (;; afterPass = true) {\n"
                                          "    if (afterPass) {\n"
                                          "      everySlot(c, [&](Activation &t) {\n"
                                          "        completeCall(t);\n"
                                          "        if (t.resumes<calls::Verify>())\n"
                                          "          stages::verifyResume(t);\n"
                                          "        if (t.in(State::COMMIT))\n"
                                          "          stages::commit(t);\n"
                                          "      });\n"
                                          "      endTick(c);\n"
                                          "    }\n"
                                          "    beginTick(c);\n"
                                          "    if (c.done)\n"
                                          "      return;\n"
                                          "    admission(c, State::QUEUED, [&](Activation &t) { stages::admit(t); });\n"
                                          "    everySlot(c, [&](Activation &t) {\n"
                                          "      if (t.in(State::VERIFY))\n"
                                          "        stages::verifyIssue(t);\n"
                                          "    });\n"
                                          "    formPass(c);\n"
                                          "    if (c.numRows > 0)\n"
                                          "      return;\n"
                                          "    // A tick without rows: no other CTA hears of it.\n"
                                          "  } // tick\n");
}

TEST(EmitControl, LineDirectivesNameTheYamlAndTheTrueLine) {
  const std::string text = emitted({}, true);
  EXPECT_NE(text.find("#line 29 \"p.yaml\"\n  t.goTo(State::DONE);\n"), std::string::npos) << text;
  std::istringstream in(text);
  std::string line;
  unsigned own = 0;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.rfind("#line ", 0) != 0 || line.find("\"pipeline.cu\"") == std::string::npos)
      continue;
    EXPECT_EQ(std::stoi(line.substr(6)), number + 1);
    ++own;
  }
  EXPECT_EQ(own, 4u) << "one after each part";
}

TEST(EmitControl, NamesOfThePipelineStandInPlacesOfTheirOwn) {
  Pipeline p;
  p.declarations += "  field @float {init = 0, type = \"i32\"} @0:11:3\n"
                    "  field @slot {init = 0, type = \"i32\"} @0:11:3\n"; // as a member of the header
  p.commit = R"(      %t = field.get @slot : i32 @0:27:9
      %c2 = const {value = 2} : i32 @0:27:9
      field.set @slot(%c2) @0:27:9
      field.set @float(%t) @0:28:9
      count.add @committed(%t) @0:28:9
      goto {to = ["DONE"]} @0:29:9
)";
  const std::string text = emitted(p);
  EXPECT_NE(text.find("  int float_; // float\n  int slot;\n};\n"), std::string::npos) << text;
  EXPECT_EQ(bodyOf(text, "commit"), "  Fields &r = t.r.fields;\n"
                                    "  const int t2 = r.slot;\n"
                                    "  t.set(r.slot, 2);\n"
                                    "  t.set(r.float_, t2);\n"
                                    "  t.count(Metric::committed, t2);\n"
                                    "  t.goTo(State::DONE);\n");
}

/// Code alone, without comments, empty lines and numbers of `#line`; a string is `~`, and so is what follows a `_` in a
/// word. A reader with no trust: a carriage return, a form feed and what Unicode knows as a separator end a line, and
/// any
/// `\` or trigraph of it at a line's end joins the next one to it.
std::string codeOf(std::string text) {
  const auto replaceAll = [&](std::string_view old, std::string_view with) {
    for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size())
      text.replace(at, old.size(), with);
  };
  for (const char *end : {"\r", "\v", "\f", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"})
    replaceAll(end, "\n");
  replaceAll("\?\?/", "\\");
  std::string code;
  const auto skipTo = [&](size_t at, char end) {
    while (at < text.size() && text[at] != end && text[at] != '\n') {
      at += text[at] == '\\';
      for (size_t blank = at; end == '\n' && blank < text.size(); ++blank)
        if (text[blank] == '\n' && text[blank - 1] != '\n')
          at = blank;
        else if (text[blank] != ' ' || text[at - 1] != '\\')
          break;
      ++at;
    }
    return at;
  };
  bool inWord = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = skipTo(at + 1, '"');
      code += '~';
    } else if (text.compare(at, 2, "//") == 0) {
      at = skipTo(at, '\n') - 1;
    } else if (c == '\n') {
      while (!code.empty() && (code.back() == ' ' || code.back() == '\n'))
        code.pop_back();
      code += c;
    } else if (inWord && (std::isalnum(static_cast<unsigned char>(c)) || c == '_')) {
      continue;
    } else if (std::isdigit(static_cast<unsigned char>(c)) && code.ends_with("#line ")) {
      continue;
    } else {
      code += c;
    }
    inWord = c == '_';
  }
  return code;
}

TEST(EmitControl, NoTextOfAFileBecomesCode) {
  // Names of IR text, the path that it gives, and the YAML's line, which comes after `// `.
  const auto emitWith = [](const std::string &what) {
    std::string quoted;
    for (char c : what)
      quoted += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    Pipeline p;
    std::string text = p.text();
    const auto put = [&](const std::string &old, const std::string &with) {
      for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += with.size())
        text.replace(at, old.size(), with);
    };
    put("path = \"p.yaml\"", "path = \"p" + quoted + "\"");
    put("@committed", "@\"com" + quoted + "\"");
    put("@draft", "@\"dr" + quoted + "\"");
    put("@VERIFY", "@\"VER" + quoted + "\"");
    put("\"VERIFY\"", "\"VER" + quoted + "\"");
    put("stage = \"commit\"", "stage = \"c" + quoted + "\"");
    SourceFiles files;
    Diagnostics diags(files);
    std::string yaml(28, '\n');
    files.add("p.yaml", yaml + "goto: DONE # " + what + "\n");
    const auto module = ir::parse(diags, files.add("test.ir", text));
    if (!module || !ir::verify(*module, diags))
      return "cannot read: " + diags.render();
    CodeWriter w;
    emit::emitControl(w, *module, &files, {});
    return w.text();
  };
  const std::string plain = emitWith("_");
  EXPECT_NE(plain.find("  // goto: DONE # _\n#line 29 \"p_\"\n"), std::string::npos) << plain;
  for (int byte = 1; byte < 256; ++byte) {
    const std::string c(1, char(byte));
    if (std::isalnum(byte))
      continue;
    for (const std::string &what : {c, c + "\n#;{", "\\" + c, "\?\?/" + c}) {
      const std::string text = emitWith(what);
      EXPECT_EQ(codeOf(text), codeOf(plain)) << byte << "\n" << text;
    }
  }
}

TEST(EmitControl, LongLinesAreCut) {
  SourceFiles files;
  Diagnostics diags(files);
  files.add("p.yaml", std::string(28, '\n') + "goto: DONE # " + std::string(100000, 'x') + "\n");
  const auto module = ir::parse(diags, files.add("test.ir", Pipeline().text()));
  ASSERT_TRUE(module);
  CodeWriter w;
  emit::emitControl(w, *module, &files, {});
  EXPECT_LT(w.text().size(), 10000u);
  EXPECT_NE(w.text().find("xxx...\n"), std::string::npos);
}

TEST(RequestLayout, OffsetsFollowTheHeader) {
  const auto module = parsed(Pipeline().text());
  ASSERT_TRUE(module);
  const auto json = nlohmann::json::parse(emit::requestLayoutJson(*module));
  const int header = sizeof(megalith::abi::RequestOf<1>);
  EXPECT_EQ(json["fields"][0]["name"], "draft");
  EXPECT_EQ(json["fields"][0]["capacity"], 8);
  EXPECT_EQ(json["fields"][0]["offset"], header);
  EXPECT_EQ(json["fields"][1]["offset"], header + 36);
  EXPECT_EQ(json["fields"][1]["init"], 3);
  EXPECT_EQ(json["fields"][2]["type"], "f32");
  EXPECT_EQ(json["fields"][2]["offset"], header + 40);
  EXPECT_EQ(json["fields"][2]["init"], 0.5);
  EXPECT_EQ(json["request_bytes"], (header + 44 + 7) / 8 * 8);
  EXPECT_EQ(json["initial_state"], 0);
  EXPECT_EQ(json["fault_state"], 4);
  EXPECT_EQ(json["states"][1]["name"], "VERIFY");
  EXPECT_EQ(json["states"][1]["slot"], true);
  EXPECT_EQ(json["states"][1]["place"], "p.yaml:13");
  EXPECT_EQ(json["file"], "p.yaml");
  EXPECT_EQ(json["calls"][0], "p.yaml:23");
  EXPECT_EQ(json["metrics"][0], "committed");
  EXPECT_EQ(json["gauges"][0]["name"], "size.block");
}

TEST(RequestLayout, InputsHaveTheOffsetsOfTheStruct) {
  const auto module = parsed(withInputs().text());
  ASSERT_TRUE(module);
  const auto json = nlohmann::json::parse(emit::requestLayoutJson(*module));
  const int header = sizeof(megalith::abi::RequestOf<1>);
  // As in the text above.
  struct Fields {
    int draft[9], accepted;
    float ema;
  };
  struct Inputs {
    megalith::abi::InputRange rates, flags;
    int tenant;
    megalith::abi::InputRange text;
    float share;
    megalith::abi::InputRange few;
  };
  struct Request {
    char head[header];
    Fields fields;
    Inputs inputs;
  };
  ASSERT_EQ(json["inputs"].size(), 6u);
  EXPECT_EQ(json["inputs"][0]["otherwise"], nlohmann::json::array({0.5}));
  EXPECT_EQ(json["inputs"][2],
            nlohmann::json({{"name", "tenant"}, {"type", "i32"}, {"offset", offsetof(Request, inputs.tenant)}}));
  EXPECT_EQ(
      json["inputs"][3],
      nlohmann::json(
          {{"name", "a.text"}, {"type", "token"}, {"offset", offsetof(Request, inputs.text)}, {"capacity", 5000}}));
  EXPECT_EQ(
      json["inputs"][4],
      nlohmann::json(
          {{"name", "share"}, {"type", "f32"}, {"offset", offsetof(Request, inputs.share)}, {"otherwise", 0.25}}));
  EXPECT_EQ(json["inputs"][5]["offset"], offsetof(Request, inputs.few));
  EXPECT_EQ(json["inputs"][5]["otherwise"], nlohmann::json::array({7}));
  EXPECT_EQ(json["request_bytes"], sizeof(Request));
}
