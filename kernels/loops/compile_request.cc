#include "kernels/loops/compile_request.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/compiler/kernel_compiler.h"
#include "kernels/loops/loop_skeleton.h"
#include "proto/base/status_macros.h"
#include "proto/loops/codec.h"
#include "proto/loops/definition.h"

namespace xpud::kernels {
namespace {

// Calls the visitor with each number of a class, and then with its lists of bits.
void VisitClass(auto& of, auto& visit) {
  visit.Number(of.schedule);
  visit.Number(of.warps);
  visit.Number(of.keeps_rows);
  visit.Number(of.across);
  visit.Number(of.stage);
  visit.Number(of.cut);
  visit.Bits(of.guarded);
  visit.Bits(of.is_exact);
  visit.Bits(of.is_natural);
}

// A number takes a byte; a list is so many characters, and a space.
struct Writer {
  void Number(auto number) { bytes += static_cast<char>(number); }
  void Bits(const std::vector<bool>& bits) {
    for (const bool bit : bits) bytes += bit ? '1' : '0';
    bytes += ' ';
  }
  std::string bytes;
};

struct Reader {
  void Number(auto& number) { number = static_cast<std::decay_t<decltype(number)>>(Byte()); }
  void Bits(std::vector<bool>& bits) {
    for (char c = Byte(); failed == false && c != ' '; c = Byte()) bits.push_back(c == '1');
  }
  char Byte() {
    failed |= bytes.empty();
    if (failed) return 0;
    const char byte = bytes.front();
    bytes.remove_prefix(1);
    return byte;
  }
  std::string_view bytes;
  bool failed = false;
};

}  // namespace

std::string CompileRequestFor(const LoopVariant& variant) {
  Writer writer;
  writer.Number(variant.body_number());
  VisitClass(variant.call(), writer);
  return writer.bytes + variant.bytes();
}

absl::StatusOr<std::string> CompileRequested(const CodeTarget& target, std::string_view request) {
  Reader reader{request};
  uint8_t body = 0;
  LoopVariant::Class of;
  reader.Number(body);
  VisitClass(of, reader);
  ASSIGN_OR_RETURN(const auto definition, loops::Definition::Create(reader.bytes, ""));
  const std::vector<loops::Body>& bodies = definition->kernel().bodies;
  if (reader.failed || body >= bodies.size() || of.guarded.size() != bodies[body].statements.size() ||
      of.is_exact.size() != bodies[body].indices.size() ||
      of.is_natural.size() != bodies[body].indices.size())
    return absl::InvalidArgumentError("a request of a kernel that does not fit it");
  const std::shared_ptr<const LoopVariant> variant = LoopVariant::Intern(definition, body, std::move(of));
  return KernelCompiler::Compile(target, LoopSkeleton(), LoopSkeleton::KeyOf(*variant));
}

absl::Status WarmUpCompiler(const CodeTarget& target) {
  using loops::IndexOp;
  using loops::StatementKind;
  loops::Body body = {.outer = 1,
                      .extents = {0},
                      .indices = {{.op = IndexOp::kConstant, .constant = 64}, {.op = IndexOp::kIterator}},
                      .statements = {}};
  body.statements = {
      {.kind = StatementKind::kLoad, .operand = 0, .index = 1},
      {.kind = StatementKind::kCall,
       .type = ops::DType::kFloat32,
       .function = loops::Function::exp,
       .values = {0, loops::kNone, loops::kNone}},
      {.kind = StatementKind::kStore, .operand = 1, .index = 1, .values = {1, loops::kNone, loops::kNone}}};
  const loops::Kernel kernel = {
      .operands = {{ops::DType::kFloat32, loops::Role::kRead}, {ops::DType::kFloat32, loops::Role::kWritten}},
      .sizes = 0,
      .bodies = {body}};
  ASSIGN_OR_RETURN(const auto definition, loops::Definition::Create(loops::Encode(kernel), ""));
  const auto variant = LoopVariant::Intern(
      definition, 0,
      {.guarded = {false, false, false}, .is_exact = {true, true}, .is_natural = {true, true}});
  return KernelCompiler::Compile(target, LoopSkeleton(), LoopSkeleton::KeyOf(*variant)).status();
}

}  // namespace xpud::kernels
