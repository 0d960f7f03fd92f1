#include "megalith/IR/Text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <unordered_map>

namespace megalith::ir {

namespace {

bool isIdentifier(llvm::StringRef s) {
  return !s.empty() && !llvm::isDigit(s[0]) && llvm::all_of(s, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

std::string quoted(llvm::StringRef s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 32 || c == 127)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

/// Shortest text that reads back as the same number, never mistaken for an integer.
/// `isF32`: the number is used as f32, and the text need only read back as that.
std::string floatText(double v, bool isF32) {
  float f = static_cast<float>(v);
  std::string s = fmt::format("{}", v);
  if (isF32 && f == v && static_cast<float>(std::strtod(fmt::format("{}", f).c_str(), nullptr)) == f)
    s = fmt::format("{}", f);
  if (std::isfinite(v) && s.find_first_of(".e") == std::string::npos)
    s += ".0";
  return s;
}

std::string attrText(const Attr &attr, bool isF32) {
  struct {
    bool isF32;
    std::string operator()(bool) { return ""; }
    std::string operator()(int64_t v) { return fmt::format("{}", v); }
    std::string operator()(double v) { return floatText(v, isF32); }
    std::string operator()(const std::string &v) { return quoted(v); }
    std::string operator()(const std::vector<int64_t> &v) { return fmt::format("[{}]", fmt::join(v, ", ")); }
    std::string operator()(const std::vector<double> &v) {
      std::vector<std::string> parts;
      for (double real : v)
        parts.push_back(floatText(real, isF32));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    std::string operator()(const std::vector<std::string> &v) {
      std::vector<std::string> parts;
      for (const std::string &s : v)
        parts.push_back(quoted(s));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
  } visitor{isF32};
  return std::visit(visitor, attr);
}

class Printer {
public:
  Printer(const Module &module, PrintOptions options) : module(module), options(options) {}

  void print(const Operation &op) {
    // In a valid module no value crosses these operations, and names may start afresh.
    bool isScope = op.op == Op::Stage || op.op == Op::Part || op.op == Op::PolicyObserve || op.op == Op::PolicyOutput ||
                   op.op == Op::Segment;
    if (isScope && scopes++ == 0 && !namedOutside) {
      names.clear();
      taken.clear();
      unnamed = 0;
    }
    out.append(2 * indent, ' ');
    head(op);
    for (size_t i = 0; i < op.regions.size(); ++i) {
      out += i ? ", {\n" : " {\n";
      ++indent;
      printRegion(op, op.regions[i]);
      --indent;
      out.append(2 * indent, ' ');
      out += "}";
    }
    if (isScope)
      --scopes;
    out += "\n";
  }

  /// Everything of `op` but its regions.
  void head(const Operation &op) {
    if (!op.results.empty())
      out += list(op.results) + " = ";
    out += mnemonic(op.op);
    if (!op.name.empty())
      out += " @" + (isIdentifier(op.name) ? op.name : quoted(op.name));
    if (!op.operands.empty())
      out += "(" + list(op.operands) + ")";
    std::string attrs;
    bool isF32 = (op.has<attr::type>() && op.get<attr::type>() == Scalar::F32) ||
                 (op.op == Op::Const && !op.results.empty() && module.type(op.result()).is(Scalar::F32));
    for (const auto &[key, value] : op.attrs) {
      const bool *flag = std::get_if<bool>(&value);
      if (flag && !*flag)
        continue;
      attrs += (attrs.empty() ? "" : ", ") + (isIdentifier(key) ? key : quoted(key));
      if (!flag)
        attrs += " = " + attrText(value, isF32);
    }
    if (!attrs.empty())
      out += " {" + attrs + "}";
    for (size_t i = 0; i < op.results.size(); ++i)
      out += (i ? ", " : " : ") + module.type(op.results[i]).str();
    if (options.locations && op.loc)
      out += fmt::format(" @{}:{}:{}", op.loc.file, op.loc.line, op.loc.column);
  }

  std::string out;

private:
  void printRegion(const Operation &parent, const Region &region) {
    if (!region.args.empty()) {
      out.append(2 * indent, ' ');
      out += "^(";
      for (size_t i = 0; i < region.args.size(); ++i)
        out += fmt::format("{}{} : {}", i ? ", " : "", name(region.args[i]), module.type(region.args[i]).str());
      out += "):\n";
    }
    for (const Operation &op : region.ops)
      if (parent.op != Op::Module || options.part == PrintOptions::All ||
          (op.op == Op::Model) == (options.part == PrintOptions::Models))
        print(op);
  }

  std::string list(llvm::ArrayRef<Value> values) {
    std::string s;
    for (Value v : values)
      s += (s.empty() ? "" : ", ") + name(v);
    return s;
  }

  const std::string &name(Value v) {
    std::string &n = names[v.id];
    if (!n.empty())
      return n;
    namedOutside |= scopes == 0;
    if (v.id >= module.values.size())
      return n = "%?";
    std::string hint = module.hint(v).str();
    if (hint.empty())
      return n = fmt::format("%{}", unnamed++);
    for (char &c : hint)
      if (!llvm::isAlnum(c) && c != '_')
        c = '_';
    if (llvm::isDigit(hint[0]))
      hint.insert(0, 1, '_');
    std::string unique = hint;
    for (unsigned i = 1; !taken.insert(unique).second; ++i)
      unique = fmt::format("{}_{}", hint, i);
    return n = fmt::format("%{}", unique);
  }

  const Module &module;
  PrintOptions options;
  std::unordered_map<uint32_t, std::string> names;
  llvm::StringSet<> taken;
  unsigned unnamed = 0, indent = 0, scopes = 0;
  bool namedOutside = false; ///< a value was named outside of every scope
};

} // namespace

std::string print(const Module &module, PrintOptions options) {
  Printer p(module, options);
  p.print(module.root);
  return std::move(p.out);
}

std::string print(const Module &module, const Operation &op) {
  Printer p(module, {});
  p.print(op);
  return std::move(p.out);
}

std::string print(const Attr &attr) { return attrText(attr, /*isF32=*/false); }

std::string printHead(const Module &module, const Operation &op) {
  PrintOptions options;
  options.locations = false;
  Printer p(module, options);
  p.head(op);
  return std::move(p.out);
}

} // namespace megalith::ir
