// A kernel's arguments, declared once for the planner that passes them and for the generated code that reads
// them.
//
// They are a struct template over a side. Its Visit names each argument once, in order:
//
// clang-format off
//   template <typename Side>
//   struct FillArguments {
//     typename Side::Pointer out;
//     typename Side::Integer count;
//     typename Side::Integers sizes;
//     typename Side::Immediate value;
//
//     void Visit(const FillKey& key, auto& visit) {
//       visit(out, count);
//       visit.First(sizes, key.rank);               // as many as the key says
//       visit.Immediate(value, ScalarOf(key.type)); // passed as that type
//     }
//   };
// clang-format on
//
// The key alone determines which arguments there are. A planner fills FillArguments<Planned> and calls
// PushArguments; the emission gets FillArguments<Emitted> from Emitter::Begin. Independent of LLVM.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/api/launch.h"
#include "kernels/compiler/scalar.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels {

// The side of a planner: the values of one launch. Lists and immediates are not copied until they are pushed.
struct Planned {
  using Pointer = const void*;
  using Integer = int64_t;
  using Integers = const int64_t*;
  using Immediate = const ops::Number*;
};

// The side that has only types.
struct Declared {
  struct Pointer {};
  struct Integer {};
  struct Immediate {};
  using Integers = std::array<Integer, ops::kMaxRank>;
};

// The object that Visit is called with. `Each` is called with each argument, and with the scalar of an
// immediate.
template <typename Each>
class ArgumentVisitor {
 public:
  explicit ArgumentVisitor(Each each) : each_(std::move(each)) {}

  [[gnu::always_inline]] void operator()(auto&... arguments) { (each_(arguments), ...); }
  // Visits the first `count` elements of a list, or of an array of arguments.
  [[gnu::always_inline]] void First(auto& list, int count) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) each_(list[i]);
  }
  [[gnu::always_inline]] void Immediate(auto& number, Scalar as) { each_(number, as); }

 private:
  Each each_;
};

// Converts to an integer, always defined: reals out of range saturate, NaN gives 0.
inline int64_t SaturatedInteger(const ops::Number& number) {
  if (number.is_integer) return number.integer;
  if (std::isnan(number.real)) return 0;
  if (number.real >= 0x1p63) return std::numeric_limits<int64_t>::max();
  return number.real < -0x1p63 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(number.real);
}

// Pushes arguments onto a launch.
class ArgumentPusher {
 public:
  explicit ArgumentPusher(ArgumentWriter& writer) : writer_(writer) {}

  [[gnu::always_inline]] void operator()(const void* pointer) { writer_.Push(ArgType::kPointer, pointer); }
  [[gnu::always_inline]] void operator()(int64_t integer) { writer_.Push(ArgType::kI64, integer); }
  [[gnu::always_inline]] void operator()(const ops::Number* number, Scalar as) {
    const ArgType type = ImmediateArg(as);
    if (type == ArgType::kF64) {
      writer_.Push(type, number->AsReal());
    } else if (type == ArgType::kF32) {
      writer_.Push(type, static_cast<float>(number->AsReal()));
    } else if (as == Scalar::kBool) {
      writer_.Push(type, int64_t{number->is_integer ? number->integer != 0 : number->real != 0});
    } else {
      writer_.Push(type, SaturatedInteger(*number));
    }
  }
  // Deleted: a list or an immediate in place of one pointer.
  template <typename T>
  void operator()(T*) = delete;

 private:
  ArgumentWriter& writer_;
};

// The last step of a plan: pushes all of a launch's arguments. `key` must be the key of the launch's kernel;
// KernelLibrary::Plan fails if the types of arguments differ.
template <typename Key, template <typename> typename Arguments>
[[gnu::flatten]] void PushArguments(const Key& key, Arguments<Planned>& arguments, Launch& launch) {
  ArgumentWriter writer(launch);
  ArgumentVisitor visit{ArgumentPusher(writer)};
  arguments.Visit(key, visit);
  writer.Finish();
}

// Returns the types of the arguments of `key`'s kernel.
template <template <typename> typename Arguments, typename Key>
std::vector<ArgType> TypesOf(const Key& key) {
  struct Lister {
    void operator()(const Declared::Pointer&) { types.push_back(ArgType::kPointer); }
    void operator()(const Declared::Integer&) { types.push_back(ArgType::kI64); }
    void operator()(const Declared::Immediate&, Scalar as) { types.push_back(ImmediateArg(as)); }
    std::vector<ArgType>& types;
  };
  std::vector<ArgType> types;
  ArgumentVisitor visit{Lister{types}};
  Arguments<Declared>().Visit(key, visit);
  return types;
}

}  // namespace xpud::kernels
