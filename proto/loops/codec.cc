#include "proto/loops/codec.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/check.h"

namespace xpud::loops {
namespace {

uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
int64_t FromZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

class Writer {
 public:
  void Number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void Type(DType type) { Number(static_cast<uint64_t>(type)); }
  void Function(loops::Function function) { Number(static_cast<uint64_t>(function)); }
  void Reduction(loops::Reduction reduction) { Number(static_cast<uint64_t>(reduction)); }
  void Flag(bool flag) { Number(flag ? 1 : 0); }
  void Operand(uint32_t operand) { Number(operand); }
  void Index(uint32_t index) { Number(index); }
  void Value(uint32_t value) { Number(value); }
  void Integer(int64_t integer) { Number(ZigZag(integer)); }
  void Real(double real) {
    const auto bits = std::bit_cast<uint64_t>(real);
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }

  std::string bytes_;
};

// After the first error all reads give 0.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return error_.empty(); }
  absl::Status status() const { return ok() ? absl::OkStatus() : absl::InvalidArgumentError(error_); }
  void Fail(std::string_view what) {
    if (ok()) error_ = absl::StrCat("byte ", at_, ": ", absl::string_view(what.data(), what.size()));
  }

  uint64_t Number() {
    uint64_t value = 0;
    for (int shift = 0; ok(); shift += 7) {
      if (at_ == bytes_.size()) return Fail("it ends early"), 0;
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) return Fail("a number has more than 64 bits"), 0;
      value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) != 0) continue;
      if (byte == 0 && shift > 0) return Fail("a number is longer than it must be"), 0;
      return value;
    }
    return 0;
  }
  // A number of at most `most`.
  uint64_t UpTo(uint64_t most, std::string_view what) {
    const uint64_t value = Number();
    if (value <= most) return value;
    Fail(absl::StrCat(absl::string_view(what.data(), what.size()), " ", value, ", at most ", most,
                      " is allowed"));
    return 0;
  }
  template <typename Enum>
  void Choice(Enum& value, int count, std::string_view what) {
    value = static_cast<Enum>(UpTo(static_cast<uint64_t>(count) - 1, what));
  }
  void Type(DType& type) { Choice(type, ops::kNumDTypes, "type"); }
  void Function(loops::Function& function) {
    const uint64_t number = Number();
    if (FindFunction(number) == nullptr) return Fail(absl::StrCat("no function has number ", number));
    function = static_cast<loops::Function>(number);
  }
  void Reduction(loops::Reduction& reduction) { Choice(reduction, kNumReductions, "reduction"); }
  void Flag(bool& flag) { flag = UpTo(1, "flag") != 0; }
  void Operand(uint32_t& operand) { Reference(operand); }
  void Index(uint32_t& index) { Reference(index); }
  void Value(uint32_t& value) { Reference(value); }
  void Reference(uint32_t& to) { to = static_cast<uint32_t>(UpTo(kNone - 1, "reference")); }
  void Integer(int64_t& integer) { integer = FromZigZag(Number()); }
  void Real(double& real) {
    if (bytes_.size() - at_ < 8) return Fail("it ends early");
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= uint64_t{static_cast<uint8_t>(bytes_[at_++])} << (8 * i);
    real = std::bit_cast<double>(bits);
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  const std::string_view bytes_;
  size_t at_ = 0;
  std::string error_;
};

void Write(const IndexNode& node, Writer& writer) {
  writer.Number(static_cast<uint64_t>(node.op));
  if (node.op == IndexOp::kConstant) return writer.Integer(node.constant);
  writer.Index(node.a);
  if (ArityOf(node.op) == 2) writer.Index(node.b);
}

IndexNode ReadNode(Reader& reader) {
  IndexNode node;
  reader.Choice(node.op, kNumIndexOps, "index operation");
  if (node.op == IndexOp::kConstant) {
    reader.Integer(node.constant);
    return node;
  }
  reader.Index(node.a);
  if (ArityOf(node.op) == 2) reader.Index(node.b);
  return node;
}

Body ReadBody(size_t& nodes, size_t& statements, Reader& reader) {
  Body body;
  const uint64_t dimensions = reader.UpTo(kMaxDimensions, "number of dimensions");
  body.outer = static_cast<uint32_t>(reader.UpTo(dimensions, "number of outer dimensions"));
  body.extents.resize(dimensions);
  for (uint32_t& extent : body.extents) reader.Index(extent);
  const uint64_t count = reader.UpTo(kMaxIndices - nodes, "number of index nodes");
  nodes += count;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) body.indices.push_back(ReadNode(reader));
  const uint64_t length = reader.UpTo(kMaxStatements - statements, "number of statements");
  statements += length;
  for (uint64_t i = 0; i < length && reader.ok(); ++i) {
    Statement statement;
    reader.Choice(statement.kind, kNumStatementKinds, "kind of statement");
    VisitFields(statement, reader);
    body.statements.push_back(statement);
  }
  return body;
}

}  // namespace

std::string Encode(const Kernel& kernel) {
  Writer writer;
  writer.Number(kVersion);
  writer.Number(kernel.operands.size());
  for (const Operand& operand : kernel.operands) {
    writer.Type(operand.type);
    writer.Number(static_cast<uint64_t>(operand.role));
  }
  writer.Number(kernel.sizes);
  writer.Number(kernel.bodies.size());
  for (const Body& body : kernel.bodies) {
    writer.Number(body.extents.size());
    writer.Number(body.outer);
    for (const uint32_t extent : body.extents) writer.Index(extent);
    writer.Number(body.indices.size());
    for (const IndexNode& node : body.indices) Write(node, writer);
    writer.Number(body.statements.size());
    for (const Statement& statement : body.statements) {
      writer.Number(static_cast<uint64_t>(statement.kind));
      VisitFields(statement, writer);
    }
  }
  return std::move(writer.bytes_);
}

absl::StatusOr<Kernel> Decode(std::string_view bytes) {
  Reader reader(bytes);
  if (bytes.size() > kMaxKernelBytes)
    return absl::InvalidArgumentError(absl::StrCat("a loop kernel has ", bytes.size(), " bytes, at most ",
                                                   kMaxKernelBytes, " are allowed"));
  if (const uint64_t version = reader.Number(); reader.ok() && version != kVersion)
    reader.Fail(absl::StrCat("version ", version, ", this daemon knows ", kVersion));
  Kernel kernel;
  const uint64_t operands = reader.UpTo(kMaxArguments, "number of operands");
  for (uint64_t i = 0; i < operands && reader.ok(); ++i) {
    Operand operand;
    reader.Type(operand.type);
    reader.Choice(operand.role, kNumRoles, "role");
    kernel.operands.push_back(operand);
  }
  kernel.sizes = static_cast<uint32_t>(reader.UpTo(kMaxArguments, "number of sizes"));
  const uint64_t bodies = reader.UpTo(kMaxBodies, "number of bodies");
  size_t nodes = 0, statements = 0;
  for (uint64_t i = 0; i < bodies && reader.ok(); ++i)
    kernel.bodies.push_back(ReadBody(nodes, statements, reader));
  if (reader.ok() && !reader.at_end()) reader.Fail("bytes are left over");
  if (!reader.ok()) return reader.status();
  return kernel;
}

}  // namespace xpud::loops
