// Writes the LLVM IR of one kernel for any target: arguments, groups and lanes, loops, typed loads and
// stores. What differs between a host object, PTX and SPIR-V is hidden here; skeletons are written once on
// top of it.
//
// Groups and lanes: a host group is one lane (a worker runs it whole, its loops are vectorised); a GPU group
// is `kGpuLanes` threads, each a lane. A loop that starts at Lane() and steps by Lanes() is shared out among
// them. On NVPTX the lanes of a warp may be a team of their own: see UseWarps.
//
// Owned by one compile; one thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/api/launch.h"
#include "kernels/compiler/arguments.h"
#include "kernels/compiler/scalar.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "proto/ops/dtype.h"

namespace xpud::kernels {

inline constexpr uint32_t kGpuLanes = 256;
inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kGpuWarps = kGpuLanes / kWarpLanes;
// Bytes that a GPU's lane loads or stores at once, at most.
inline constexpr int kBlockBytes = 16;

// The side of a kernel's arguments (compiler/arguments.h) that its code has: IR values.
struct Emitted {
  struct Argument {
    llvm::Value* value = nullptr;
    operator llvm::Value*() const { return value; }
  };
  struct Pointer : Argument {};
  struct Integer : Argument {};
  struct Immediate : Argument {};
  using Integers = std::array<Integer, ops::kMaxRank>;
};

class Emitter {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;
  enum class LoopKind {
    kPlain,
    kParallel,  // iterations are independent: memory accesses inside carry that promise, and the loop is
                // vectorised
  };

  Emitter(Target target, llvm::LLVMContext& context);

  // Opens kernel `name` of `key`. Returns its arguments. Everything below is called between Begin and Finish.
  template <template <typename> typename Arguments, typename Key>
  Arguments<Emitted> Begin(const std::string& name, const Key& key) {
    Open(name, TypesOf<Arguments>(key));
    Arguments<Emitted> arguments;
    size_t next = 0;
    ArgumentVisitor visit([&](Emitted::Argument& argument, auto...) { argument.value = args_[next++]; });
    arguments.Visit(key, visit);
    return arguments;
  }
  std::unique_ptr<llvm::Module> Finish();

  Target target() const { return target_; }
  bool gpu() const { return target_ != Target::kHost; }
  llvm::IRBuilder<>& ir() { return ir_; }
  llvm::Module& module() { return *module_; }

  Value Group(int axis);  // i64
  Value Lane();           // i64, 0 on the host
  Value Lanes();          // i64, 1 on the host
  // NVPTX: from here on a team is a warp, not a group: Lane and Lanes are those of the warp, Barrier nothing.
  void UseWarps() { warps_ = true; }
  bool warps() const { return warps_; }
  Value Team();    // i64: the group's number along axis 0, or the warp's, counted over all groups
  Value Thread();  // i64: within the group, whatever the team
  // NVPTX: what the lane whose number differs in `mask`'s bits has. All lanes of a warp must get here.
  Value ShuffleXor(Value value, uint32_t mask);
  Value Scratch() const { return scratch_; }  // host only

  // for (i = begin; i < end; i += step) carried = body(i, carried); gives the final carried values.
  Values Loop(Value begin, Value end, Value step, const Values& carried,
              const std::function<Values(Value, const Values&)>& body, LoopKind kind = LoopKind::kPlain);
  void Loop(Value begin, Value end, Value step, const std::function<void(Value)>& body,
            LoopKind kind = LoopKind::kPlain);
  // As Loop, while i + length <= end, in steps of `stride`: body(indices, carried) for `count` of them at a
  // time, so that their loads are under way together, and then for one.
  Values LoopUnrolled(Value begin, Value end, int64_t stride, int64_t length, int64_t count, Values carried,
                      const std::function<Values(const Values&, const Values&)>& body);
  void If(Value condition, const std::function<void()>& then);
  void Barrier();  // all lanes of a group; nothing on the host

  // Types, `width` lanes wide when width > 1.
  llvm::Type* TypeOf(Scalar scalar, int width = 1);
  llvm::Type* StorageOf(ops::DType type);
  Value I64(int64_t value) { return ir_.getInt64(static_cast<uint64_t>(value)); }
  Value Constant(Scalar scalar, double value, int width = 1);
  Value IntegerConstant(Scalar scalar, int64_t value, int width = 1);
  Value Convert(Value value, Scalar from, Scalar to);

  Value Min(Value a, Value b);  // i64
  Value CeilDiv(Value a, Value b);
  Value Add(Value a, Value b) { return ir_.CreateNSWAdd(a, b); }
  Value Mul(Value a, Value b) { return ir_.CreateNSWMul(a, b); }

  // Element `index` (i64) of an array of `type`, converted. With width > 1: elements index .. index + width
  // - 1.
  Value Address(ops::DType type, Value base, Value index);
  Value Load(ops::DType type, Value base, Value index, Scalar as, int width = 1);
  void Store(ops::DType type, Value base, Value index, Value value, Scalar from, int width = 1);
  // Unconverted access for temporaries.
  Value LoadRaw(llvm::Type* type, Value base, Value index);
  void StoreRaw(Value base, Value index, Value value);
  // GPUs: merges the lanes' values, of one or more components, over the team, in an order that is always the
  // same; known to all lanes. All lanes of the team must get here; `merge` need not commute but in rounding.
  // `once`: they get here once, not in a loop.
  Values MergeLanes(const Values& values, const std::function<Values(const Values&, const Values&)>& merge,
                    bool once = false);

  // GPUs: `width` elements from `index`, as scalars, in accesses of up to kBlockBytes; the address is a
  // multiple of what is accessed at once.
  Values LoadBlock(ops::DType type, Value base, Value index, Scalar as, int width);
  void StoreBlock(ops::DType type, Value base, Value index, const Values& values, Scalar from);
  // What Load makes of an element's bits, which LoadRaw gave.
  Value FromStorage(ops::DType type, Value raw, Scalar as);
  // The bits that Store writes for a value.
  Value ToStorage(ops::DType type, Value value, Scalar from);

  // An array in the group's shared memory (GPU only).
  Value Shared(llvm::Type* element, uint64_t count);

  // A call of function `name` of math.c.
  Value CallMath(const std::string& name, llvm::Type* result, std::span<llvm::Value* const> operands);

  // As Load, of memory that the kernel does not write: may be moved out of loops.
  Value LoadInvariant(ops::DType type, Value base, Value index, Scalar as);

  // Whether `index`, of memory, is one of `count`.
  Value IsIndex(Value index, Value count);
  // error_word = kIndexOutOfRange with `value` above, where `bad` (i1).
  void ReportIndex(Value error_word, Value bad, Value value);
  // What error_word holds for an index `value` out of range.
  Value IndexError(Value value);
  // error_word = code, unless code (i64) is 0.
  void ReportCode(Value error_word, Value code);

 private:
  void Open(const std::string& name, std::span<const ArgType> args);
  void MarkAccess(llvm::Instruction* access);
  Value RoundToBrain(Value value);
  Value Pack(ops::DType type, const Values& values, Scalar from);
  Value BuiltinIndex(llvm::Intrinsic::ID nvptx, const char* spirv, int axis);

  const Target target_;
  llvm::LLVMContext& context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> ir_;
  llvm::Function* function_ = nullptr;
  std::string name_;
  std::vector<ArgType> arg_types_;
  Values args_;
  Value group_ = nullptr;
  Value scratch_ = nullptr;
  bool warps_ = false;
  std::vector<llvm::MDNode*> access_groups_;  // of the parallel loops that are open
};

}  // namespace xpud::kernels
