// Loop kernels and their calls. The first eight bytes choose small sizes, numbers of elements, and what
// indirect indices are; the rest is a kernel. What is accepted is encoded again, and where a call says that
// an index is inside its operand, every position is tried.
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/check.h"
#include "proto/loops/call_check.h"
#include "proto/loops/check.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/evaluate.h"
#include "proto/loops/text.h"

namespace xpud::fuzz {
namespace {

using loops::kNone;

constexpr int64_t kMaxPositionsTried = 512;
constexpr size_t kChoices = 8;

class Call {
 public:
  Call(const loops::Kernel& kernel, std::string_view choices) : kernel_(kernel), choices_(choices) {
    for (uint32_t i = 0; i < kernel.sizes; ++i) sizes_.push_back(Choice(i) % 9 - 1);
    for (size_t i = 0; i < kernel.operands.size(); ++i) elements_.push_back(Choice(i + 3) % 65);
  }

  void Check() {
    const absl::StatusOr<loops::KernelInfo> info = loops::CheckKernel(kernel_);
    if (!info.ok()) return;
    const absl::StatusOr<loops::CallInfo> call = loops::CheckCall(kernel_, *info, sizes_, elements_);
    if (!call.ok()) return;
    for (size_t i = 0; i < kernel_.bodies.size(); ++i) CheckBody(kernel_.bodies[i], call->bodies[i]);
  }

 private:
  int64_t Choice(size_t i) const { return static_cast<uint8_t>(choices_[i % kChoices]); }

  void CheckBody(const loops::Body& body, const loops::BodyCall& call) const {
    int64_t positions = 1;
    for (const int64_t extent : call.extents)
      positions = std::min(positions * std::min(extent, kMaxPositionsTried + 1), kMaxPositionsTried + 1);
    if (positions == 0 || positions > kMaxPositionsTried) return;
    std::vector<int64_t> at(call.extents.size());
    do {
      Position(*this, body, at).Check(call);
    } while (loops::testing::Next(at, call.extents));
  }

  class Position {
   public:
    Position(const Call& call, const loops::Body& body, std::span<const int64_t> at)
        : call_(call), body_(body), at_(at), indirect_(body.statements.size()) {}

    void Check(const loops::BodyCall& checked) {
      for (size_t i = 0; i < body_.statements.size(); ++i) {
        const loops::Statement& statement = body_.statements[i];
        if (statement.operand == kNone || statement.index == kNone || checked.guarded[i]) continue;
        reached_ = true;
        const int64_t index = Evaluate(statement.index),
                      count = statement.bound == kNone ? 1 : Evaluate(statement.bound),
                      elements = call_.elements_[statement.operand];
        XPUD_CHECK(!reached_ || (index >= 0 && index < elements && count >= 0 && count <= elements - index));
      }
    }

   private:
    int64_t Evaluate(uint32_t index) {
      const auto indirect = [this](uint32_t statement) { return Indirect(statement); };
      return loops::testing::Evaluate(body_, index, {at_, call_.sizes_, indirect});
    }
    // A place below the bound. Where there is none, the call fails before anything uses it.
    int64_t Indirect(uint32_t statement) {
      std::optional<int64_t>& bound = indirect_[statement];
      if (!bound) bound = Evaluate(body_.statements[statement].bound);
      reached_ &= *bound > 0;
      return *bound > 0 ? call_.Choice(statement) % *bound : 0;
    }

    const Call& call_;
    const loops::Body& body_;
    const std::span<const int64_t> at_;
    std::vector<std::optional<int64_t>> indirect_;  // bounds, by statement
    bool reached_ = true;
  };

  const loops::Kernel& kernel_;
  const std::string_view choices_;
  std::vector<int64_t> sizes_, elements_;
};

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud;
  if (size < fuzz::kChoices) return 0;
  const std::string input(reinterpret_cast<const char*>(data), size), bytes = input.substr(fuzz::kChoices);
  const absl::StatusOr<loops::Kernel> kernel = loops::Decode(bytes);
  if (!kernel.ok()) return 0;
  XPUD_CHECK(loops::Encode(*kernel) == bytes);
  static_cast<void>(loops::TextOf(*kernel));
  fuzz::Call(*kernel, input).Check();
  return 0;
}
