// Writes the LLVM IR of one kernel for any target: arguments, groups and lanes, loops, typed loads and
// stores. It hides the differences between a host object, PTX and SPIR-V, so skeletons are written once.
//
// Groups and lanes: a host group is one lane, which a worker runs whole, with vectorised loops. A GPU group
// is `kGpuLanes` threads, each of them a lane. A loop that starts at Lane() and steps by Lanes() is divided
// among the lanes. On NVPTX the lanes of a warp may be a team of their own: see UseWarps.
//
// Used by one compilation, on one thread.
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

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kGpuWarps = kGpuLanes / kWarpLanes;
// The largest access of a GPU's lane, in bytes.
inline constexpr int kBlockBytes = 16;

// The side of generated code (see compiler/arguments.h): IR values.
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
    kParallel,  // iterations are independent: their memory accesses are marked so, and the loop is vectorised
  };

  Emitter(Target target, llvm::LLVMContext& context);

  // Opens kernel `name` of `key`. Returns its arguments. The functions below are called between Begin and
  // Finish.
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
  // NVPTX: from here on, a team is a warp instead of a group. Lane and Lanes are those of the warp, and
  // Barrier does nothing.
  void UseWarps() { warps_ = true; }
  bool warps() const { return warps_; }
  Value Team();    // i64: the number of the group along axis 0, or of the warp among all groups
  Value Thread();  // i64: within the group, also with warps
  // NVPTX: limits registers, so that a multiprocessor can hold `groups` groups of the kernel at a time.
  void MakeRoomFor(int groups);
  // NVPTX: returns the value of the lane whose number differs in the bits of `mask`. REQUIRES: all lanes of a
  // warp execute it.
  Value ShuffleXor(Value value, uint32_t mask);
  // NVPTX, as above: returns a mask (i32) of the warp's lanes whose condition is true.
  Value Ballot(Value condition);
  // NVPTX, as above: returns the i32 of lane `lane` (i32) of the warp.
  Value ShuffleFrom(Value value, Value lane);
  // NVPTX, as above: orders the warp's accesses to shared memory.
  void WarpBarrier();
  Value Scratch() const { return scratch_; }  // host only

  // for (i = begin; i < end; i += step) carried = body(i, carried). Returns the final carried values.
  Values Loop(Value begin, Value end, Value step, const Values& carried,
              const std::function<Values(Value, const Values&)>& body, LoopKind kind = LoopKind::kPlain);
  void Loop(Value begin, Value end, Value step, const std::function<void(Value)>& body,
            LoopKind kind = LoopKind::kPlain);
  // Like Loop while i + length <= end, in steps of `stride`. Calls body(indices, carried) for `count`
  // iterations at a time, so that their loads are in flight together, and then for single ones.
  Values LoopUnrolled(Value begin, Value end, int64_t stride, int64_t length, int64_t count, Values carried,
                      const std::function<Values(const Values&, const Values&)>& body);
  // while (condition(carried)) carried = body(carried). Returns the final carried values.
  Values While(const Values& carried, const std::function<Value(const Values&)>& condition,
               const std::function<Values(const Values&)>& body);
  void If(Value condition, const std::function<void()>& then);
  // Returns then() if `condition` (i1) holds, else `otherwise`. Only one of them is computed.
  Values Where(Value condition, const Values& otherwise, const std::function<Values()>& then);
  void Barrier();  // of all lanes of a group; does nothing on the host

  // Returns a type, a vector of `width` if width > 1.
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

  // Accesses element `index` (i64) of an array of `type`, with conversion. With width > 1, accesses elements
  // index .. index + width - 1.
  Value Address(ops::DType type, Value base, Value index);
  Value Load(ops::DType type, Value base, Value index, Scalar as, int width = 1);
  void Store(ops::DType type, Value base, Value index, Value value, Scalar from, int width = 1);
  // GPUs: element `index` becomes combine(element, conversion as in Load and Store), atomically for all lanes
  // that do the same. Of smaller elements than 4 bytes, the aligned 4 bytes around them are exchanged.
  void Atomically(ops::DType type, Value base, Value index, Scalar as,
                  const std::function<Value(Value)>& combine);
  // GPUs: adds to element `index`, a number, atomically.
  void AtomicAdd(ops::DType type, Value base, Value index, Value value, Scalar from);
  // NVPTX with CodeTarget::AddsVectors: adds 4 values (f32) to elements index .. index + 3 of global memory,
  // each atomically. REQUIRES: the address is a multiple of 16.
  void AtomicAddFloats(Value base, Value index, const Values& values);
  // Accesses temporaries without conversion.
  Value LoadRaw(llvm::Type* type, Value base, Value index);
  void StoreRaw(Value base, Value index, Value value);
  // GPUs: merges the values of all lanes of the team, each of one or more components. The order is fixed, and
  // all lanes get the result. REQUIRES: all lanes of the team execute it. `merge` must be commutative except
  // for rounding. `once`: it is not executed in a loop.
  Values MergeLanes(const Values& values, const std::function<Values(const Values&, const Values&)>& merge,
                    bool once = false);

  // GPUs: accesses `width` elements from `index` as scalars, with up to kBlockBytes in each access. REQUIRES:
  // the address is a multiple of the size of an access.
  Values LoadBlock(ops::DType type, Value base, Value index, Scalar as, int width);
  void StoreBlock(ops::DType type, Value base, Value index, const Values& values, Scalar from);
  // Converts an element's bits, from LoadRaw, as Load does.
  Value FromStorage(ops::DType type, Value raw, Scalar as);
  // Returns the bits that Store writes for a value.
  Value ToStorage(ops::DType type, Value value, Scalar from);

  // Returns an array in this lane's own memory.
  Value Local(llvm::Type* element, uint64_t count);
  // Returns an array in the group's shared memory (GPU only).
  Value Shared(llvm::Type* element, uint64_t count);

  // Calls function `name` of math.c.
  Value CallMath(const std::string& name, llvm::Type* result, std::span<llvm::Value* const> operands);

  // Like Load, from memory that the kernel does not write, so it may be moved out of loops.
  Value LoadInvariant(ops::DType type, Value base, Value index, Scalar as);

  // Returns whether `index`, read from memory, is in [0, count).
  Value IsIndex(Value index, Value count);
  // Sets error_word to kIndexOutOfRange, with `value` above it, if `bad` (i1) is true.
  void ReportIndex(Value error_word, Value bad, Value value);
  // Returns the error word for an index `value` out of range.
  Value IndexError(Value value);
  // Sets error_word to `code` (i64) unless that is 0, or the word has the code of an earlier command.
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
  std::vector<llvm::MDNode*> access_groups_;  // of the parallel loops that are currently open
};

}  // namespace xpud::kernels
