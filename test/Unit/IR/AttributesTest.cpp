#include "megalith/IR/Text.h"
#include "llvm/ADT/StringExtras.h"
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace megalith;
using namespace megalith::ir;

namespace {

/// A value that the list allows, as IR text writes it.
std::string rightValue(const AttrInfo &info) {
  const std::string word = info.values.words.empty() ? "w" : info.values.words[0];
  switch (info.kind) {
  case AttrKind::Flag:
    return "";
  case AttrKind::Int:
    return std::to_string(info.values.least);
  case AttrKind::Float:
    return "0.5";
  case AttrKind::Number:
    return "1";
  case AttrKind::String:
    return "\"" + word + "\"";
  case AttrKind::Ints:
    return "[1]";
  case AttrKind::Floats:
    return "[0.5]";
  case AttrKind::Strings:
    return "[\"" + word + "\"]";
  }
  return "";
}

/// Values that the list refuses: of another kind, out of range, an unknown word.
std::vector<std::string> wrongValues(const AttrInfo &info) {
  std::vector<std::string> wrong;
  switch (info.kind) {
  case AttrKind::Flag:
    wrong = {"1", "\"w\""};
    break;
  case AttrKind::Int:
    wrong = {"\"w\"", "0.5", "[1]", std::to_string(info.values.least - 1), std::to_string(info.values.most + 1)};
    break;
  case AttrKind::Float:
  case AttrKind::Number:
    wrong = {"\"w\"", "[1]"};
    break;
  case AttrKind::String:
    wrong = {"1", "[\"w\"]"};
    break;
  case AttrKind::Floats:
    wrong = {"0.5", "[1]", "[\"w\"]"};
    break;
  case AttrKind::Ints:
    wrong = {"1", "[\"w\"]"};
    break;
  case AttrKind::Strings:
    wrong = {"1", "[1]"};
    break;
  }
  if (info.values.positive)
    wrong.insert(wrong.end(), {"0", "-0.5", "inf"});
  if (!info.values.words.empty())
    wrong.push_back(info.kind == AttrKind::String ? "\"no such word\"" : "[\"no such word\"]");
  return wrong;
}

using Written = std::vector<std::pair<std::string, std::string>>; // names and values

std::string attributeText(const Written &attributes) {
  std::string text;
  for (const auto &[name, value] : attributes)
    text += (text.empty() ? "" : ", ") + name + (value.empty() ? "" : " = " + value);
  return text.empty() ? "" : " {" + text + "}";
}

/// What the verifier says first of an operation with these attributes. The operation stands in line 2, column 3.
std::string firstError(Op op, const Written &attributes) {
  const std::string head = mnemonic(op).str() + attributeText(attributes);
  const std::string text = op == Op::Module ? head + " {\n}" : "module {\n  " + head + "\n}";
  SourceFiles files;
  Diagnostics diags(files);
  std::optional<Module> module = parse(diags, files.add("t.ir", text));
  EXPECT_TRUE(module) << text << diags.render();
  if (!module || verify(*module, diags))
    return "";
  return diags.render();
}

void expectError(Op op, const Written &attributes, const std::string &message) {
  const std::string place = op == Op::Module ? "t.ir:1:1: " : "t.ir:2:3: ";
  const std::string found = firstError(op, attributes);
  EXPECT_TRUE(llvm::StringRef(found).starts_with(place + "error: the IR is not valid: " + message))
      << found << "\nexpected " << place << message << attributeText(attributes);
}

Written rightAttributes(Op op, const AttrInfo *without = nullptr) {
  Written list;
  for (const AttrInfo &info : attributes(op))
    if (&info != without)
      list.emplace_back(info.name, rightValue(info));
  return list;
}

/// Whether the first error, if there is one, is about attributes.
bool isAboutAttributes(const std::string &error) {
  return error.find("attribute") != std::string::npos || error.find(" must be ") != std::string::npos;
}

} // namespace

// One test for all operations: a new one is covered by its lines in the list.
TEST(Attributes, OfEachOperationAreChecked) {
  for (unsigned i = 0; i < numOps; ++i) {
    const auto op = static_cast<Op>(i);
    const std::string name = mnemonic(op).str();
    const Written right = rightAttributes(op);
    EXPECT_FALSE(isAboutAttributes(firstError(op, right))) << firstError(op, right);

    Written extra = right;
    extra.emplace_back("colour", "5");
    expectError(op, extra, "`colour` is no attribute of `" + name + "`");

    for (const AttrInfo &info : attributes(op)) {
      Written misspelt = rightAttributes(op, &info);
      const std::string typo = info.name + "e";
      misspelt.emplace_back(typo, rightValue(info));
      expectError(op, misspelt, "`" + typo + "` is no attribute of `" + name + "`");
      EXPECT_NE(firstError(op, misspelt).find("note: did you mean `" + info.name + "`?"), std::string::npos)
          << firstError(op, misspelt);

      if (info.required)
        expectError(op, rightAttributes(op, &info), "the attribute `" + info.name + "` of `" + name + "` is missing");
      else
        EXPECT_FALSE(isAboutAttributes(firstError(op, rightAttributes(op, &info))));

      for (const std::string &value : wrongValues(info)) {
        Written wrong = rightAttributes(op, &info);
        wrong.emplace_back(info.name, value);
        expectError(op, wrong, "`" + info.name + "` must be ");
      }
    }
  }
}

// A fuzzer wrote this in place of `after`.
TEST(Attributes, OfTheModuleItself) {
  EXPECT_EQ(firstError(Op::Module, {{"stage", "\"form-ticks\""}}),
            "t.ir:1:1: error: the IR is not valid: `stage` is no attribute of `module`, in "
            "`module {stage = \"form-ticks\"}` [ir-invalid]\n"
            "    1 | module {stage = \"form-ticks\"} {\n"
            "      | ^~~~~~\n");
}

TEST(Attributes, AreReadAsTheListSays) {
  Operation op;
  op.op = Op::Pool;
  op.set<attr::pages>(3);
  EXPECT_EQ(op.get<attr::pages>(), 3);
  EXPECT_TRUE(op.has<attr::pages>());
  EXPECT_FALSE(op.has<attr::watermark>());
  EXPECT_EQ(op.get<attr::watermark>(), 100) << "the default of the list";
  EXPECT_EQ(op.get<attr::on_full>(), OnFull::Fail);
  op.set<attr::on_full>(OnFull::Wait);
  EXPECT_EQ(op.get<attr::on_full>(), OnFull::Wait);
  op.erase<attr::on_full>();
  EXPECT_EQ(op.get<attr::on_full>(), OnFull::Fail);

  op.op = Op::State;
  EXPECT_FALSE(op.get<attr::slot>());
  EXPECT_TRUE(op.get<attr::next>().empty());
  op.set<attr::slot>(true);
  op.set<attr::initial>(true);
  op.set<attr::next>({"A"});
  EXPECT_EQ(op.get<attr::next>(), (std::vector<std::string>{"A"}));
  EXPECT_EQ(op.flags(), (std::vector<std::string>{"initial", "slot"})) << "in the order of the list";

  op.op = Op::Reduce;
  EXPECT_TRUE(op.get<attr::with>().empty());
  op.set<attr::with>({Operand::TopK, Operand::Ahead});
  EXPECT_EQ(op.get<attr::with>(), (std::vector<Operand>{Operand::TopK, Operand::Ahead}));
  EXPECT_EQ(*op.attrs.find("with"), Attr(std::vector<std::string>{"top_k", "ahead"})) << "as text has them";
  op.setWord<attr::part>("prob");
  EXPECT_EQ(op.get<attr::part>(), ReducerPart::Prob);

  op.op = Op::Model;
  EXPECT_EQ(op.get<attr::rope_high>(), 4.0);
  op.op = Op::Attention;
  op.attrs.addUnchecked("scale", int64_t(2));
  EXPECT_EQ(op.get<attr::scale>(), 2.0) << "a whole number is a number";

  op.op = Op::Const;
  op.set<attr::value>(0.5);
  EXPECT_TRUE(op.get<attr::value>().isReal());
  EXPECT_EQ(op.get<attr::value>().real(), 0.5);
  op.set<attr::value>(true);
  EXPECT_TRUE(op.get<attr::value>().isFlag());
  EXPECT_EQ(op.get<attr::value>().whole(), 1);
  EXPECT_TRUE(op.get<attr::value>().truth());
}

/// The list as docs/ir.md has it.
static std::string table() {
  std::string text = "| operation | attribute | kind | without it | values |\n| --- | --- | --- | --- | --- |\n";
  const Op *last = nullptr;
  for (const AttrInfo &info : attributes()) {
    std::string kind = kindText(info.kind).drop_front(2).str();
    std::string without = info.required                    ? "an error"
                          : info.kind == AttrKind::Flag    ? "off"
                          : info.kind == AttrKind::Strings ? "empty"
                                                           : "";
    if (info.otherwise) {
      const auto *string = std::get_if<std::string>(&*info.otherwise);
      without = string ? "`\"" + *string + "\"`" : "`" + std::to_string(std::get<int64_t>(*info.otherwise)) + "`";
    }
    std::string values;
    if (info.kind == AttrKind::Int && (info.values.least != 0 || info.values.most != INT32_MAX))
      values = std::to_string(info.values.least) + " to " + std::to_string(info.values.most);
    if (info.values.positive)
      values = "above 0";
    for (const std::string &word : info.values.words)
      values += (values.empty() ? "`" : ", `") + word + "`";
    text += "| " + (last && *last == info.op ? "" : "`" + mnemonic(info.op).str() + "`") + " | `" + info.name + "` | " +
            kind + " | " + without + " | " + values + " |\n";
    last = &info.op;
  }
  return text;
}

TEST(Attributes, TheDocumentHasTheList) {
  std::ifstream file(MEGALITH_SOURCE_DIR "/docs/ir.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string document = text.str();
  const size_t begin = document.find("| operation | attribute |"), end = document.find("\n\n", begin);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(document.substr(begin, end + 1 - begin), table()) << "docs/ir.md, section Attributes, must have:\n"
                                                              << table();
}
