#include "kernels/softmax/softmax_skeleton.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/compiler/row_emission.h"
#include "kernels/skeleton_number.h"

namespace xpud::kernels {

KernelKey SoftmaxKey::Pack() const {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kSoftmax));
  for (const bool bit : {columns, logarithm, backward, contiguous, staged}) writer.Put(bit, 1);
  writer.Put(static_cast<uint64_t>(kept), 4);
  writer.Put(static_cast<uint64_t>(out), 4);
  writer.Put(static_cast<uint64_t>(input), 4);
  return writer.key();
}

SoftmaxKey SoftmaxKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  SoftmaxKey key;
  for (bool* bit : {&key.columns, &key.logarithm, &key.backward, &key.contiguous, &key.staged})
    *bit = reader.Take(1) != 0;
  key.kept = static_cast<int>(reader.Take(4));
  key.out = static_cast<ops::DType>(reader.Take(4));
  key.input = static_cast<ops::DType>(reader.Take(4));
  return key;
}

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class SoftmaxEmission {
 public:
  SoftmaxEmission(const SoftmaxKey& key, Emitter& emitter)
      : key_(key),
        e_(emitter),
        rows_(emitter),
        type_(AccumulateOf(key.input)),
        operands_(key.backward ? 3 : 2) {}

  void Run(const std::string& name) {
    const size_t operands = static_cast<size_t>(operands_), kept = static_cast<size_t>(key_.kept);
    sizes_at_ = operands;
    strides_at_ = sizes_at_ + kept;
    scalars_at_ = strides_at_ + operands * kept;
    std::vector<ArgType> args(operands, ArgType::kPointer);
    args.resize(scalars_at_ + 1 + operands + 2, ArgType::kI64);
    e_.Begin(name, args);
    if (key_.columns) {
      EmitColumns();
    } else {
      EmitRows();
    }
  }

 private:
  Value N() const { return e_.Arg(scalars_at_); }
  Value Stride(int operand) const {
    return key_.contiguous ? e_.I64(1) : e_.Arg(scalars_at_ + 1 + static_cast<size_t>(operand));
  }
  Value Items() const { return e_.Arg(scalars_at_ + 1 + static_cast<size_t>(operands_)); }
  Value SliceSize() const { return e_.Arg(scalars_at_ + 2 + static_cast<size_t>(operands_)); }

  Value Load(int operand, Value offset) {
    return e_.Load(operand == 0 ? key_.out : key_.input, e_.Arg(static_cast<size_t>(operand)), offset, type_);
  }
  void Store(Value offset, Value value) { e_.Store(key_.out, e_.Arg(0), offset, value, type_); }
  Value Sub(Value x, Value y) { return e_.ir().CreateFSub(x, y); }
  Value MulF(Value x, Value y) { return e_.ir().CreateFMul(x, y); }
  Value Exp(Value x) { return rows_.Math("exp", x, type_); }

  // ---- rows

  void EmitRows() {
    Value const begin = e_.Mul(e_.Group(0), SliceSize());
    Value const end = e_.Min(e_.Add(begin, SliceSize()), Items());
    e_.Loop(begin, end, e_.I64(1), [&](Value item) {
      const Values base = rows_.Offsets(item, key_.kept, sizes_at_, strides_at_, operands_);
      const auto at = [&](int operand, Value j) {
        return e_.Add(base[static_cast<size_t>(operand)], e_.Mul(j, Stride(operand)));
      };
      if (key_.backward) {
        BackwardRow(at);
      } else {
        ForwardRow(at);
      }
    });
  }

  template <typename At>
  void ForwardRow(const At& at) {
    Value const zero = e_.I64(0);
    Value const largest = rows_.Max(zero, N(), type_, [&](Value j) { return Load(1, at(1, j)); });
    const auto shifted = [&](Value j) { return Sub(Load(1, at(1, j)), largest); };
    if (key_.logarithm) {
      Value const sum = rows_.Sum(zero, N(), type_, 1, [&](Value j) { return Values{Exp(shifted(j))}; })[0];
      Value const log = rows_.Math("log", sum, type_);
      rows_.ForEach(zero, N(), [&](Value j) { Store(at(0, j), Sub(shifted(j), log)); });
      return;
    }
    Value const one = e_.Constant(type_, 1);
    if (!key_.staged) {
      Value const sum = rows_.Sum(zero, N(), type_, 1, [&](Value j) { return Values{Exp(shifted(j))}; })[0];
      Value const scale = e_.ir().CreateFDiv(one, sum);
      rows_.ForEach(zero, N(), [&](Value j) { Store(at(0, j), MulF(Exp(shifted(j)), scale)); });
      return;
    }
    Value const sum = rows_.Sum(zero, N(), type_, 1, [&](Value j) {
      Value const e = Exp(shifted(j));
      e_.StoreRaw(e_.Scratch(), j, e);
      return Values{e};
    })[0];
    Value const scale = e_.ir().CreateFDiv(one, sum);
    rows_.ForEach(zero, N(), [&](Value j) {
      Store(at(0, j), MulF(e_.LoadRaw(e_.TypeOf(type_), e_.Scratch(), j), scale));
    });
  }

  // Inputs: the gradient, and the forward result.
  template <typename At>
  void BackwardRow(const At& at) {
    Value const zero = e_.I64(0);
    Value const sum = rows_.Sum(zero, N(), type_, 1, [&](Value j) {
      Value const g = Load(1, at(1, j));
      return Values{key_.logarithm ? g : MulF(g, Load(2, at(2, j)))};
    })[0];
    rows_.ForEach(zero, N(),
                  [&](Value j) { Store(at(0, j), Gradient(Load(1, at(1, j)), Load(2, at(2, j)), sum)); });
  }

  Value Gradient(Value g, Value y, Value sum) {
    return key_.logarithm ? Sub(g, MulF(Exp(y), sum)) : MulF(Sub(g, sum), y);
  }

  // ---- columns

  // Group x is (outer kept item, slice of columns).
  void EmitColumns() {
    const int inner = key_.kept - 1;
    Value const columns = e_.Arg(sizes_at_ + static_cast<size_t>(inner));
    Value const slices = e_.CeilDiv(columns, SliceSize());
    Value const item = e_.ir().CreateUDiv(e_.Group(0), slices);
    Value const begin = e_.Mul(e_.ir().CreateURem(e_.Group(0), slices), SliceSize());
    Value const end = e_.Min(e_.Add(begin, SliceSize()), columns);
    const Values base = OuterOffsets(item);
    if (e_.gpu()) {
      ColumnPerLane(base, begin, end);
      return;
    }
    e_.Loop(begin, end, e_.I64(kColumnBlock), [&](Value first) {
      Value const count = e_.Min(e_.ir().CreateSub(end, first), e_.I64(kColumnBlock));
      Values here = base;
      for (Value& offset : here) offset = e_.Add(offset, first);
      ColumnBlock(here, count);
    });
  }

  Values OuterOffsets(Value item) {
    Values offsets(static_cast<size_t>(operands_), e_.I64(0));
    for (int d = key_.kept - 2; d >= 0; --d) {
      Value const size = e_.Arg(sizes_at_ + static_cast<size_t>(d));
      Value const at = d == 0 ? item : e_.ir().CreateURem(item, size);
      if (d > 0) item = e_.ir().CreateUDiv(item, size);
      for (int o = 0; o < operands_; ++o) {
        Value const stride = e_.Arg(strides_at_ + static_cast<size_t>(o * key_.kept + d));
        offsets[static_cast<size_t>(o)] = e_.Add(offsets[static_cast<size_t>(o)], e_.Mul(at, stride));
      }
    }
    return offsets;
  }

  void ColumnBlock(const Values& base, Value count) {
    llvm::Type* const type = e_.TypeOf(type_);
    Value const zero = e_.I64(0);
    Value const maxima = e_.Scratch();
    Value const sums = e_.ir().CreateInBoundsGEP(type, e_.Scratch(), e_.I64(kColumnBlock));
    const auto each = [&](const std::function<void(Value)>& body) { rows_.ForEach(zero, count, body); };
    const auto sweep = [&](const std::function<void(const Values&, Value)>& body) {
      e_.Loop(zero, N(), e_.I64(1), [&](Value d) {
        each([&](Value c) {
          Values at;
          for (int o = 0; o < operands_; ++o) {
            at.push_back(e_.Add(e_.Add(base[static_cast<size_t>(o)], e_.Mul(d, Stride(o))), c));
          }
          body(at, c);
        });
      });
    };
    const auto add = [&](Value c, Value x) {
      e_.StoreRaw(sums, c, e_.ir().CreateFAdd(e_.LoadRaw(type, sums, c), x));
    };
    each([&](Value c) {
      e_.StoreRaw(sums, c, e_.Constant(type_, 0));
      e_.StoreRaw(maxima, c, e_.Constant(type_, -INFINITY));
    });
    if (key_.backward) {
      sweep([&](const Values& at, Value c) {
        Value const g = Load(1, at[1]);
        add(c, key_.logarithm ? g : MulF(g, Load(2, at[2])));
      });
      sweep([&](const Values& at, Value c) {
        Store(at[0], Gradient(Load(1, at[1]), Load(2, at[2]), e_.LoadRaw(type, sums, c)));
      });
      return;
    }
    sweep([&](const Values& at, Value c) {
      e_.StoreRaw(maxima, c, rows_.Maximum(e_.LoadRaw(type, maxima, c), Load(1, at[1])));
    });
    sweep([&](const Values& at, Value c) { add(c, Exp(Sub(Load(1, at[1]), e_.LoadRaw(type, maxima, c)))); });
    // The sum becomes what each element needs of it.
    each([&](Value c) {
      Value const sum = e_.LoadRaw(type, sums, c);
      e_.StoreRaw(
          sums, c,
          key_.logarithm ? rows_.Math("log", sum, type_) : e_.ir().CreateFDiv(e_.Constant(type_, 1), sum));
    });
    sweep([&](const Values& at, Value c) {
      Value const x = Sub(Load(1, at[1]), e_.LoadRaw(type, maxima, c)), sum = e_.LoadRaw(type, sums, c);
      Store(at[0], key_.logarithm ? Sub(x, sum) : MulF(Exp(x), sum));
    });
  }

  // GPU: each lane walks its own column.
  void ColumnPerLane(const Values& base, Value begin, Value end) {
    Value const column = e_.Add(begin, e_.Lane());
    e_.If(e_.ir().CreateICmpSLT(column, end), [&] {
      const auto at = [&](int o, Value d) {
        return e_.Add(e_.Add(base[static_cast<size_t>(o)], column), e_.Mul(d, Stride(o)));
      };
      const auto sum = [&](const std::function<Value(Value)>& term) {
        return e_.Loop(e_.I64(0), N(), e_.I64(1), {e_.Constant(type_, 0)},
                       [&](Value d, const Values& current) {
                         return Values{e_.ir().CreateFAdd(current[0], term(d))};
                       })[0];
      };
      if (key_.backward) {
        Value const total = sum([&](Value d) {
          Value const g = Load(1, at(1, d));
          return key_.logarithm ? g : MulF(g, Load(2, at(2, d)));
        });
        e_.Loop(e_.I64(0), N(), e_.I64(1),
                [&](Value d) { Store(at(0, d), Gradient(Load(1, at(1, d)), Load(2, at(2, d)), total)); });
        return;
      }
      Value const largest = e_.Loop(e_.I64(0), N(), e_.I64(1), {e_.Constant(type_, -INFINITY)},
                                    [&](Value d, const Values& current) {
                                      return Values{rows_.Maximum(current[0], Load(1, at(1, d)))};
                                    })[0];
      Value const total = sum([&](Value d) { return Exp(Sub(Load(1, at(1, d)), largest)); });
      Value const log = key_.logarithm ? rows_.Math("log", total, type_) : nullptr;
      e_.Loop(e_.I64(0), N(), e_.I64(1), [&](Value d) {
        Value const x = Sub(Load(1, at(1, d)), largest);
        Store(at(0, d), key_.logarithm ? Sub(x, log) : e_.ir().CreateFDiv(Exp(x), total));
      });
    });
  }

  const SoftmaxKey& key_;
  Emitter& e_;
  RowEmission rows_;
  const Scalar type_;
  const int operands_;
  size_t sizes_at_ = 0, strides_at_ = 0, scalars_at_ = 0;
};

}  // namespace

std::string SoftmaxSkeleton::NameOf(const KernelKey& packed) const {
  const SoftmaxKey key = SoftmaxKey::Unpack(packed);
  return absl::StrCat(key.logarithm ? "log_softmax" : "softmax", key.backward ? "_backward" : "",
                      key.columns ? "_columns" : "_rows");
}

absl::Status SoftmaxSkeleton::Emit(const KernelKey& packed, const std::string& name, Emitter& emitter) const {
  const SoftmaxKey key = SoftmaxKey::Unpack(packed);
  SoftmaxEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
