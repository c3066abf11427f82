#include "sdk/torch/csrc/boxed_op.h"

#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <vector>

#include "proto/ops/check.h"
#include "sdk/torch/csrc/copy.h"
#include "sdk/torch/csrc/errors.h"
#include "sdk/torch/csrc/factories.h"
#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/operand.h"

namespace xpud::shim {
namespace {

using ops::AttributeType;
using ops::Parameter;
using ops::TypeRule;

template <typename Named>
const Named* FindNamed(std::span<const Named> all, const std::string& name) {
  const auto found = std::ranges::find(all, std::string_view(name), &Named::name);
  return found == all.end() ? nullptr : &*found;
}

// The dtype of a sum in ATen: integers and bool are summed in int64 unless a dtype is given.
at::ScalarType SumType(at::ScalarType self, std::optional<at::ScalarType> asked) {
  return asked.value_or(c10::isIntegralType(self, /*includeBool=*/true) ? at::kLong : self);
}

// An operator's arguments, grouped by their role in the family.
struct Arguments {
  std::vector<at::Tensor> inputs, outputs;  // undefined: absent, or an output to allocate
  std::vector<uint16_t> lists;
  std::vector<ops::Number> attributes;
  std::optional<at::ScalarType> dtype;
  bool is_served = true;
};

void AddNumbers(const c10::IValue& value, Arguments& to) {
  const size_t at = to.attributes.size();
  to.attributes.push_back({});
  if (value.isIntList()) {
    for (const int64_t each : value.toIntVector()) to.attributes.push_back(ops::Number::Integer(each));
  } else if (value.isDoubleList()) {
    for (const double each : value.toDoubleVector()) to.attributes.push_back(ops::Number::Real(each));
  }
  to.attributes[at] = ops::Number::Integer(static_cast<int64_t>(to.attributes.size() - at - 1));
}

void AddAttribute(const ops::Attribute& attribute, const c10::IValue& value, const at::Tensor& typed,
                  Arguments& to) {
  if (ops::IsList(attribute.type)) return AddNumbers(value, to);
  if (value.isNone()) return to.attributes.push_back(ops::Number::Real(attribute.value));
  switch (attribute.type) {
    case AttributeType::kDimension:
      return to.attributes.push_back(
          ops::Number::Integer(at::maybe_wrap_dim(value.toInt(), std::max<int64_t>(typed.dim(), 1))));
    case AttributeType::kDType: {
      const auto type = ToDType(value.toScalarType());
      to.is_served &= type.has_value();
      return to.attributes.push_back(ops::Number::Integer(type ? static_cast<int64_t>(*type) : 0));
    }
    case AttributeType::kBool:
      return to.attributes.push_back(ops::Number::Integer(value.toBool() ? 1 : 0));
    case AttributeType::kReal:
      return to.attributes.push_back(ops::Number::Real(value.toScalar().toDouble()));
    default:
      return to.attributes.push_back(ops::Number::Integer(value.toScalar().toLong()));
  }
}

// Returns the argument of this name, or None.
c10::IValue ValueOf(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values,
                    std::string_view name) {
  for (size_t i = 0; i < values.size(); ++i)
    if (schema.arguments()[i].name() == name) return values[i];
  return {};
}

void AddTensors(std::span<const Parameter> parameters, const c10::FunctionSchema& schema,
                c10::ArrayRef<c10::IValue> values, std::vector<at::Tensor>& to,
                std::vector<uint16_t>& lists) {
  for (const Parameter& parameter : parameters) {
    const c10::IValue value = ValueOf(schema, values, parameter.name);
    if (!parameter.is(ops::kList)) {
      to.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
      continue;
    }
    const std::vector<at::Tensor> list = value.toTensorVector();
    lists.push_back(static_cast<uint16_t>(list.size()));
    to.insert(to.end(), list.begin(), list.end());
  }
}

Arguments Sort(const ops::FamilyDescriptor& family, const c10::FunctionSchema& schema,
               c10::ArrayRef<c10::IValue> values) {
  Arguments sorted;
  AddTensors(family.outputs, schema, values, sorted.outputs, sorted.lists);
  AddTensors(family.inputs, schema, values, sorted.inputs, sorted.lists);
  const size_t tensors = sorted.inputs.size() + sorted.outputs.size();
  sorted.is_served = sorted.inputs.size() > family.typed_input &&
                     sorted.inputs[family.typed_input].defined() && tensors <= ops::kMaxOperands;
  if (!sorted.is_served) return sorted;
  for (const ops::Attribute& attribute : family.attributes)
    AddAttribute(attribute, ValueOf(schema, values, attribute.name), sorted.inputs[family.typed_input],
                 sorted);
  if (const c10::IValue dtype = ValueOf(schema, values, "dtype"); dtype.isInt())
    sorted.dtype = dtype.toScalarType();
  return sorted;
}

ops::Operand OperandOf(const at::Tensor& tensor) {
  ops::Operand operand;
  operand.present = tensor.defined();
  if (!operand.present) return operand;
  operand.dtype = *ToDType(tensor.scalar_type());
  operand.rank = static_cast<uint8_t>(tensor.dim());
  std::ranges::copy(tensor.sizes(), operand.sizes.begin());
  std::ranges::copy(tensor.strides(), operand.strides.begin());
  return operand;
}

at::ScalarType ScalarTypeOf(ops::DType type) {
  for (int t = 0; t < static_cast<int>(at::ScalarType::NumOptions); ++t) {
    const auto scalar = static_cast<at::ScalarType>(t);
    if (ToDType(scalar) == type) return scalar;
  }
  TORCH_INTERNAL_ASSERT(false, "a dtype of the wire without a PyTorch type");
}

bool IsServed(const ops::Row& row, const at::Tensor& tensor, bool typed) {
  return !tensor.defined() || (IsOnDevice(tensor) && tensor.dim() <= ops::kMaxRank &&
                               IsSupported(tensor.scalar_type(), typed ? row.dtypes : ops::kAllTypes));
}

}  // namespace

bool FitsSchema(const ops::Row& row, const c10::FunctionSchema& schema) {
  const ops::FamilyDescriptor& family = ops::DescriptorOf(row);
  if (family.infer == nullptr || family.inputs.empty()) return false;
  size_t inputs = 0, attributes = 0, outputs = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    if (FindNamed(family.inputs, argument.name()) != nullptr) {
      ++inputs;
    } else if (FindNamed(family.attributes, argument.name()) != nullptr) {
      ++attributes;
    } else if (FindNamed(family.outputs, argument.name()) != nullptr) {
      ++outputs;
    } else if (argument.name() != "dtype" || row.types != TypeRule::kSum) {
      return false;
    }
  }
  return inputs == family.inputs.size() && attributes == family.attributes.size() &&
         (outputs == family.outputs.size() ||
          (outputs == 0 && schema.returns().size() == family.outputs.size()));
}

void BoxedOp::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                         torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Arguments arguments = Sort(family_, op.schema(), torch::jit::last(*stack, count));
  bool served = arguments.is_served;
  for (size_t i = 0; i < arguments.inputs.size(); ++i)
    served = served && IsServed(row_, arguments.inputs[i], i == family_.typed_input);
  if (!served) return Fallback(op, stack);

  at::Tensor& typed = arguments.inputs[family_.typed_input];
  at::ScalarType compute = typed.scalar_type();
  if (row_.types == TypeRule::kSum) {
    compute = SumType(compute, arguments.dtype);
    if (!IsSupported(compute, row_.dtypes)) return Fallback(op, stack);
    // A sum in another dtype converts the elements first.
    if (arguments.dtype && compute != typed.scalar_type()) typed = ContiguousAs(typed, compute);
  }
  std::vector<ops::Operand> inputs, inferred(arguments.outputs.size());
  for (const at::Tensor& input : arguments.inputs) {
    if (input.defined()) CheckSameDevice(typed.device(), input.device());
    inputs.push_back(OperandOf(input));
  }
  const ops::Call shapes = {.row = &row_,
                            .compute = *ToDType(compute),
                            .outputs = inferred,
                            .inputs = inputs,
                            .attributes = arguments.attributes,
                            .lists = arguments.lists};
  if (const absl::Status status = family_.infer(shapes, inferred); !status.ok()) Throw(status);
  const bool returns = !op.schema().returns().empty();
  bool empty = true;
  for (size_t o = 0; o < inferred.size(); ++o) {
    at::Tensor& out = arguments.outputs[o];
    if (!out.defined()) {
      const c10::IntArrayRef sizes(inferred[o].sizes.data(), inferred[o].rank);
      out = MakeEmpty(sizes, ScalarTypeOf(inferred[o].dtype), typed.device());
    }
    empty &= out.numel() == 0;
  }
  if (!empty) {
    std::vector<TensorRef> out_refs, in_refs;
    for (const at::Tensor& out : arguments.outputs) out_refs.push_back(Describe(out));
    for (const at::Tensor& input : arguments.inputs)
      in_refs.push_back(input.defined() ? Describe(input) : TensorRef{});
    Execute({.row = &row_,
             .compute = *ToDType(compute),
             .outputs = out_refs,
             .inputs = in_refs,
             .attributes = arguments.attributes,
             .lists = arguments.lists},
            DeviceIndexOf(typed));
  }
  torch::jit::drop(*stack, count);
  if (!returns) return;
  for (at::Tensor& out : arguments.outputs) stack->emplace_back(std::move(out));
}

}  // namespace xpud::shim
