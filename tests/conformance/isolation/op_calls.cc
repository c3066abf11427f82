#include "tests/conformance/isolation/op_calls.h"

#include "proto/base/check.h"

namespace xpud::isolation {
namespace {

using ops::DType;
using ops::Family;
using ops::Number;
using Sizes = std::vector<uint64_t>;

constexpr int kBuffers = ops::kMaxOutputs + ops::kMaxInputs;

class Builder {
 public:
  explicit Builder(const ops::Row& row, DType type) : type_(type) { call_.row = &row, call_.compute = type; }
  Builder& Out(Sizes sizes, DType type) {
    call_.outputs.push_back(TensorView(Next(), std::move(sizes), type));
    return *this;
  }
  Builder& Out(Sizes sizes) { return Out(std::move(sizes), type_); }
  Builder& In(Sizes sizes, DType type) {
    call_.inputs.push_back(TensorView(Next(), std::move(sizes), type));
    return *this;
  }
  Builder& In(Sizes sizes) { return In(std::move(sizes), type_); }
  Builder& Value(double value) {
    call_.inputs.push_back(Immediate(value));
    return *this;
  }
  Builder& Attribute(Number number) {
    call_.attributes.push_back(number);
    return *this;
  }
  Call Take() { return std::move(call_); }

 private:
  wire::Handle Next() { return {++buffers_, 1}; }

  Call call_;
  const DType type_;
  uint32_t buffers_ = 0;
};

DType TypeOf(const ops::Row& row) {
  for (const DType type : {DType::kFloat32, DType::kInt64}) {
    if (ops::Contains(row.dtypes, type)) return type;
  }
  return DType::kInt32;
}

Call Map(const ops::Row& row, DType type) {
  Builder build(row, type);
  for (int i = 0; i < row.outputs; ++i)
    build.Out({2, 3}, row.types == ops::TypeRule::kBool || i > 0 ? DType::kBool : type);
  const bool random = row.formula.find("rand") != std::string_view::npos;
  for (int i = 0; i < row.inputs; ++i) {
    if (random && i >= row.inputs - 3) {
      build.Value(1.0);
    } else {
      build.In({2, 3});
    }
  }
  return build.Take();
}

Call Reduce(const ops::Row& row, DType type) {
  const DType out = row.types == ops::TypeRule::kIndex  ? DType::kInt64
                    : row.types == ops::TypeRule::kBool ? DType::kBool
                                                        : type;
  Builder build(row, type);
  for (int i = 0; i < row.outputs; ++i) build.Out({2, 1}, out);
  return build.In({2, 3}).Attribute(Number::Real(1)).Take();
}

Call NllLoss(const ops::Row& row, DType type) {
  Builder build(row, type);
  if (row.outputs == 2) {
    build.Out({}).Out({}).In({2, 3});
  } else {
    build.Out({2, 3}).In({}).In({2, 3});
  }
  return build.In({2}, DType::kInt64)
      .In({3})
      .Attribute(Number::Integer(1))
      .Attribute(Number::Integer(-100))
      .Take();
}

Call LayerNorm(const ops::Row& row, DType type) {
  return Builder(row, type)
      .Out({2, 3})
      .Out({2})
      .Out({2})
      .In({2, 3})
      .In({3})
      .In({3})
      .Attribute(Number::Real(1e-5))
      .Take();
}

Call LayerNormBackward(const ops::Row& row, DType type) {
  return Builder(row, type)
      .Out({2, 3})
      .Out({3})
      .Out({3})
      .In({2, 3})
      .In({2, 3})
      .In({2})
      .In({2})
      .In({3})
      .Take();
}

Call Attention(const ops::Row& row, DType type) {
  const Sizes sizes = {1, 1, 2, 8};
  return Builder(row, type)
      .Out(sizes)
      .Out({1, 1, 2}, DType::kFloat32)
      .In(sizes)
      .In(sizes)
      .In(sizes)
      .In({1, 1, 2, 2})
      .Attribute(Number::Real(1))
      .Attribute(Number::Integer(0))
      .Take();
}

Call Softmax(const ops::Row& row, DType type) {
  Builder build(row, type);
  build.Out({2, 3});
  for (int i = 0; i < row.inputs; ++i) build.In({2, 3});
  return build.Attribute(Number::Integer(1)).Take();
}

}  // namespace

std::vector<View*> Call::operands() {
  std::vector<View*> all;
  for (auto* views : {&outputs, &inputs}) {
    for (View& view : *views) all.push_back(&view);
  }
  return all;
}

Call RightCall(const ops::Row& row) { return RightCall(row, TypeOf(row)); }

Call RightCall(const ops::Row& row, DType type) {
  Builder build(row, type);
  switch (row.family) {
    case Family::kMap:
      return Map(row, type);
    case Family::kReduce:
      return Reduce(row, type);
    case Family::kSoftmax:
      return Softmax(row, type);
    case Family::kLayerNorm:
      return LayerNorm(row, type);
    case Family::kLayerNormBackward:
      return LayerNormBackward(row, type);
    case Family::kGather:
      return build.Out({2, 3}).In({2, 3}).In({2, 3}, DType::kInt64).Attribute(Number::Integer(0)).Take();
    case Family::kEmbedding:
      return build.Out({2, 3}).In({4, 3}).In({2}, DType::kInt64).Take();
    case Family::kScatterAdd:
      return build.Out({4, 3}).In({2}, DType::kInt64).In({2, 3}).Attribute(Number::Integer(-1)).Take();
    case Family::kMatmul:
      return build.Out({2, 2})
          .In({2, 3})
          .In({3, 2})
          .In({2, 2})
          .Attribute(Number::Real(1))
          .Attribute(Number::Real(1))
          .Attribute(Number::Integer(0))
          .Take();
    case Family::kAttention:
      return Attention(row, type);
    case Family::kNllLoss:
      return NllLoss(row, type);
    case Family::kTest:
      return build.Out({2}).In({2}).Take();
  }
  XPUD_CHECK(false);
}

void PutOperands(HostileSession& session) {
  const std::vector<std::byte> zeros(wire::kMaxInlineUploadBytes);
  for (uint32_t id = 1; id <= kBuffers; ++id) {
    session.Put(Allocate({id, 1}, kOperandBytes));
    for (uint64_t at = 0; at < kOperandBytes; at += zeros.size())
      session.Put(UploadInline({id, 1}, at, zeros));
  }
}

}  // namespace xpud::isolation
