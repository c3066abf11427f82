#include "kernels/loops/compile_request.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/compiler/kernel_compiler.h"
#include "kernels/loops/loop_skeleton.h"
#include "kernels/loops/variant.h"
#include "proto/base/status_macros.h"
#include "proto/loops/codec.h"
#include "proto/loops/definition.h"

namespace xpud::kernels {
namespace {

// Of what a variant's identity is made of.
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

absl::StatusOr<std::string> CompileRequested(const CodeTarget& target, std::string_view request) {
  Reader reader{request};
  uint8_t body = 0;
  LoopVariant::Class of;
  reader.Number(body);
  LoopVariant::Class::Visit(of, reader);
  ASSIGN_OR_RETURN(const auto definition, loops::Definition::Create(reader.bytes, ""));
  const std::vector<loops::Body>& bodies = definition->kernel().bodies;
  if (reader.failed || body >= bodies.size() || of.block == 0 ||
      ((of.block > 1 || of.schedule == LoopSchedule::kTiles) &&
       of.in_block.size() != bodies[body].statements.size()) ||
      of.guarded.size() != bodies[body].statements.size() ||
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
