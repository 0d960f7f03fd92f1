#include "Tensor.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

std::map<std::string, int> weightIndices(const ir::Operation &model) {
  std::map<std::string, int> index;
  int next = 0;
  for (const ir::Operation &op : model.region().ops) {
    if (op.op != ir::Op::Weight || op.has("alias"))
      continue;
    index[op.name] = next;
    next += std::max<int64_t>(1, op.getInt("layers"));
  }
  for (const ir::Operation &op : model.region().ops)
    if (op.op == ir::Op::Weight && op.has("alias"))
      index[op.name] = index.at(op.getString("alias"));
  return index;
}

std::string typeName(llvm::StringRef name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (!llvm::isAlnum(c)) {
      upper = true;
      continue;
    }
    out += upper ? llvm::toUpper(c) : c;
    upper = false;
  }
  return out;
}

std::string identifier(llvm::StringRef name) {
  std::string out;
  for (char c : name)
    out += llvm::isAlnum(c) || c == '_' ? c : '_';
  if (out.empty() || llvm::isDigit(out[0]))
    out = "v" + out;
  return out;
}

std::string floatLiteral(double value) {
  std::string text = fmt::format("{:.9g}", static_cast<float>(value));
  if (text.find_first_of(".en") == std::string::npos)
    text += ".0";
  return text + "f";
}

} // namespace megalith::emit
