#include "sdk/torch/csrc/table/boxed_op.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <vector>

#include "proto/ops/check.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/storage.h"

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

// The inputs that an operator has. Of a sized family the others come from the row that finds the size.
std::span<const Parameter> GivenInputs(const ops::FamilyDescriptor& family) {
  if (!family.is_sized()) return family.inputs;
  return family.inputs.first(ops::DescriptorOf(ops::RowOf(family.sized_by)).inputs.size());
}

Arguments Sort(const ops::FamilyDescriptor& family, const c10::FunctionSchema& schema,
               c10::ArrayRef<c10::IValue> values) {
  Arguments sorted;
  AddTensors(family.outputs, schema, values, sorted.outputs, sorted.lists);
  AddTensors(GivenInputs(family), schema, values, sorted.inputs, sorted.lists);
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

// A fresh output. Of sized ones the first dimension is the innermost, as PyTorch lays out nonzero's result.
at::Tensor MakeOutput(const ops::Operand& inferred, bool sized, const at::Tensor& like) {
  const c10::IntArrayRef sizes(inferred.sizes.data(), inferred.rank);
  const at::ScalarType type = ScalarTypeOf(inferred.dtype);
  if (!sized) return MakeEmpty(sizes, type, like.device());
  c10::SmallVector<int64_t, ops::kMaxRank> strides;
  int64_t next = 1;
  for (const int64_t size : sizes) {
    strides.push_back(next);
    next *= size;
  }
  return at::empty_strided(sizes, strides, like.options().dtype(type));
}

// Executes a row, and makes the outputs that are undefined. `size`: the first one of sized outputs.
void Run(const ops::Row& row, at::ScalarType compute, int64_t size, Arguments& arguments) {
  const ops::FamilyDescriptor& family = ops::DescriptorOf(row);
  const at::Tensor& typed = arguments.inputs[family.typed_input];
  std::vector<ops::Operand> inputs, inferred(arguments.outputs.size());
  for (const at::Tensor& input : arguments.inputs) {
    if (input.defined()) CheckSameDevice(typed.device(), input.device());
    inputs.push_back(OperandOf(input));
  }
  const auto is_sized = [&](size_t o) {
    return o < family.outputs.size() && family.outputs[o].is(ops::kSized);
  };
  for (size_t o = 0; o < inferred.size(); ++o)
    if (is_sized(o)) inferred[o].sizes[0] = size;
  const ops::Call shapes = {.row = &row,
                            .compute = *ToDType(compute),
                            .outputs = inferred,
                            .inputs = inputs,
                            .attributes = arguments.attributes,
                            .lists = arguments.lists};
  if (const absl::Status status = family.infer(shapes, inferred); !status.ok()) Throw(status);
  bool empty = true;
  for (size_t o = 0; o < inferred.size(); ++o) {
    at::Tensor& out = arguments.outputs[o];
    if (!out.defined()) out = MakeOutput(inferred[o], is_sized(o), typed);
    empty &= out.numel() == 0;
  }
  if (empty) return;
  std::vector<TensorRef> out_refs, in_refs;
  for (const at::Tensor& out : arguments.outputs) out_refs.push_back(Describe(out));
  for (const at::Tensor& input : arguments.inputs)
    in_refs.push_back(input.defined() ? Describe(input) : TensorRef{});
  Execute({.row = &row,
           .compute = *ToDType(compute),
           .outputs = out_refs,
           .inputs = in_refs,
           .attributes = arguments.attributes,
           .lists = arguments.lists},
          DeviceIndexOf(typed));
}

// Adds the inputs of a sized family that its sizing row gives. Waits for the size, and returns it.
int64_t FindSize(const ops::FamilyDescriptor& family, at::ScalarType compute, Arguments& arguments) {
  const ops::Row& row = ops::RowOf(family.sized_by);
  Arguments found = arguments;
  found.outputs.assign(ops::DescriptorOf(row).outputs.size(), at::Tensor());
  Run(row, compute, 0, found);
  arguments.inputs.insert(arguments.inputs.end(), found.outputs.begin(), found.outputs.end());
  const at::Tensor& last = found.outputs.back();
  return last.numel() == 0 ? 0 : last.flatten().select(0, -1).item().toLong();
}

}  // namespace

bool FitsSchema(const ops::Row& row, const c10::FunctionSchema& schema) {
  const ops::FamilyDescriptor& family = ops::DescriptorOf(row);
  if (family.infer == nullptr || family.inputs.empty()) return false;
  const std::span<const Parameter> given = GivenInputs(family);
  size_t inputs = 0, attributes = 0, outputs = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    if (FindNamed(given, argument.name()) != nullptr) {
      ++inputs;
    } else if (FindNamed(family.attributes, argument.name()) != nullptr) {
      ++attributes;
    } else if (FindNamed(family.outputs, argument.name()) != nullptr) {
      ++outputs;
    } else if (argument.name() != "dtype" || row.types != TypeRule::kSum) {
      return false;
    }
  }
  return inputs == given.size() && attributes == family.attributes.size() &&
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
  const bool returns = !op.schema().returns().empty();
  const int64_t size = family_.is_sized() ? FindSize(family_, compute, arguments) : 0;
  Run(row_, compute, size, arguments);
  torch::jit::drop(*stack, count);
  if (!returns) return;
  for (at::Tensor& out : arguments.outputs) stack->emplace_back(std::move(out));
}

}  // namespace xpud::shim
