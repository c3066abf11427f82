// Calls as values with names. A family whose rows do not give its operands has a struct template in
// proto/ops/families/NAME.h: a member for each operand and attribute, and a function Visit, which is the one
// place that spells their order on the wire. What T is depends on who uses it:
//   Given            a call that is read: checks and kernels (Read)
//   Operand*         outputs that are inferred (Outputs)
//   TensorRef        a call that is sent (NamedOpCall)
//   Sample::Tensor   an example (SampleOf)
// Parameters and attributes of the family's descriptor follow from it, too (Described). Thread-safe.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "proto/base/check.h"
#include "proto/ops/family.h"
#include "proto/ops/op_call.h"

namespace xpud::ops {

// An operand of a call that is read. Never null: an absent one has present == false.
using Given = const Operand*;

// Attributes that are lists. Views of a call's numbers; hostile until the family's check has passed.
struct Integers {
  std::span<const Number> numbers;
  size_t size() const { return numbers.size(); }
  int64_t operator[](size_t i) const { return numbers[i].AsInteger(); }
};
struct Reals {
  std::span<const Number> numbers;
  size_t size() const { return numbers.size(); }
  double operator[](size_t i) const { return numbers[i].AsReal(); }
};

// The numbers of a list that is sent. Must outlive the call.
class NumberList {
 public:
  NumberList() = default;
  NumberList(std::initializer_list<int64_t> values) { Append(values); }
  template <typename Range>
  explicit NumberList(const Range& values) {
    Append(values);
  }

  operator Integers() const { return {numbers_}; }  // NOLINT(google-explicit-constructor): a view of it
  operator Reals() const { return {numbers_}; }     // NOLINT(google-explicit-constructor)

 private:
  template <typename Range>
  void Append(const Range& values) {
    for (const auto value : values) {
      if constexpr (std::integral<decltype(value)>) {
        numbers_.push_back(Number::Integer(value));
      } else {
        numbers_.push_back(Number::Real(value));
      }
    }
  }
  absl::InlinedVector<Number, kMaxRank> numbers_;
};

namespace internal {

struct Nothing {};

// Collects the names of a struct's members. The attributes' types follow from the members' types.
struct Description {
  static constexpr size_t kMax = 12;
  std::array<Parameter, kMax> outputs{}, inputs{};
  std::array<ops::Attribute, kMax> attributes{};
  size_t output_count = 0, input_count = 0, attribute_count = 0;
  uint8_t lists = 0;

  constexpr void Output(const Nothing&, std::string_view name, uint8_t use = kPlain) {
    outputs[output_count++] = {name, use};
  }
  constexpr void Input(const Nothing&, std::string_view name, uint8_t use = kPlain) {
    inputs[input_count++] = {name, use};
  }
  constexpr void OutputList(std::string_view name, uint8_t use = kPlain) {
    outputs[output_count++] = {name, static_cast<uint8_t>(use | kList)};
    ++lists;
  }
  constexpr void InputList(std::string_view name, uint8_t use = kPlain) {
    inputs[input_count++] = {name, static_cast<uint8_t>(use | kList)};
    ++lists;
  }
  template <typename V>
  constexpr void Attribute(const V&, std::string_view name) {
    attributes[attribute_count++] = {name, TypeOf<V>()};
  }
  template <typename V>
  constexpr void Attribute(const V&, std::string_view name, std::type_identity_t<V> otherwise) {
    attributes[attribute_count++] = {name, TypeOf<V>(), false, static_cast<double>(otherwise)};
  }
  constexpr void Dimension(int64_t, std::string_view name) {
    attributes[attribute_count++] = {name, AttributeType::kDimension};
  }

 private:
  template <typename V>
  static constexpr AttributeType TypeOf() {
    if constexpr (std::same_as<V, bool>) return AttributeType::kBool;
    if constexpr (std::same_as<V, int64_t>) return AttributeType::kInteger;
    if constexpr (std::same_as<V, double>) return AttributeType::kReal;
    if constexpr (std::same_as<V, Integers>) return AttributeType::kIntegers;
    if constexpr (std::same_as<V, Reals>) return AttributeType::kReals;
  }
};

template <template <typename> class Named>
constexpr Description kDescription = [] {
  Description description;
  const Named<Nothing> named{};
  Named<Nothing>::Visit(named, description);
  return description;
}();

// Takes operands and numbers from a call, one after the other.
class Reader {
 public:
  explicit Reader(const Call& call)
      : outputs_(call.outputs), inputs_(call.inputs), attributes_(call.attributes) {}

  void Output(Given& to, std::string_view, uint8_t = kPlain) { to = Next(outputs_); }
  void Input(Given& to, std::string_view, uint8_t = kPlain) { to = Next(inputs_); }
  void OutputList(std::string_view, uint8_t = kPlain) {}
  void InputList(std::string_view, uint8_t = kPlain) {}
  void Dimension(int64_t& to, std::string_view name) { Attribute(to, name); }
  template <typename V>
  void Attribute(V& to, std::string_view) {
    if (!attributes_.empty()) Set(to, Take());
  }
  template <typename V>
  void Attribute(V& to, std::string_view, std::type_identity_t<V> otherwise) {
    to = otherwise;
    if (!attributes_.empty()) Set(to, Take());
  }
  void Attribute(Integers& to, std::string_view) { to.numbers = TakeList(); }
  void Attribute(Reals& to, std::string_view) { to.numbers = TakeList(); }

 private:
  static constexpr Operand kAbsent = {.present = false};

  static void Set(bool& to, const Number& number) { to = number.AsInteger() != 0; }
  static void Set(int64_t& to, const Number& number) { to = number.AsInteger(); }
  static void Set(double& to, const Number& number) { to = number.AsReal(); }
  static Given Next(std::span<const Operand>& rest) {
    if (rest.empty()) return &kAbsent;
    const Given next = rest.data();
    rest = rest.subspan(1);
    return next;
  }
  Number Take() {
    const Number next = attributes_[0];
    attributes_ = attributes_.subspan(1);
    return next;
  }
  // Returns an empty list if the attributes end before it does.
  std::span<const Number> TakeList() {
    const int64_t length = attributes_.empty() ? 0 : Take().AsInteger();
    if (length < 0 || length > static_cast<int64_t>(attributes_.size())) {
      attributes_ = {};
      return {};
    }
    const auto list = attributes_.first(static_cast<size_t>(length));
    attributes_ = attributes_.subspan(list.size());
    return list;
  }

  std::span<const Operand> outputs_, inputs_;
  std::span<const Number> attributes_;
};

// Names outputs that are to be set.
class OutputNamer {
 public:
  explicit OutputNamer(std::span<Operand> outputs) : outputs_(outputs) {}
  void Output(Operand*& to, std::string_view, uint8_t = kPlain) {
    if (outputs_.empty()) return;
    to = outputs_.data();
    outputs_ = outputs_.subspan(1);
  }
  void Input(Operand*&, std::string_view, uint8_t = kPlain) {}
  void OutputList(std::string_view, uint8_t = kPlain) {}
  void InputList(std::string_view, uint8_t = kPlain) {}
  void Dimension(int64_t&, std::string_view) {}
  template <typename V>
  void Attribute(V&, std::string_view, std::type_identity_t<V> = {}) {}

 private:
  std::span<Operand> outputs_;
};

// Appends attributes to `numbers`, in the order of the wire.
template <typename Numbers>
struct AttributeWriter {
  Numbers& numbers;
  size_t needed = 0;  // numbers up to the last attribute that is not its default

  template <typename T>
  void Output(const T&, std::string_view, uint8_t = kPlain) {}
  template <typename T>
  void Input(const T&, std::string_view, uint8_t = kPlain) {}
  void OutputList(std::string_view, uint8_t = kPlain) {}
  void InputList(std::string_view, uint8_t = kPlain) {}
  void Dimension(int64_t from, std::string_view name) { Attribute(from, name); }
  template <typename V>
  void Attribute(const V& from, std::string_view) {
    if constexpr (std::same_as<V, Integers> || std::same_as<V, Reals>) {
      numbers.push_back(Number::Integer(static_cast<int64_t>(from.size())));
      numbers.insert(numbers.end(), from.numbers.begin(), from.numbers.end());
    } else if constexpr (std::same_as<V, double>) {
      numbers.push_back(Number::Real(from));
    } else {
      numbers.push_back(Number::Integer(from));
    }
    needed = numbers.size();
  }
  template <typename V>
  void Attribute(const V& from, std::string_view name, std::type_identity_t<V> otherwise) {
    const size_t before = needed;
    Attribute(from, name);
    if (from == otherwise) needed = before;
  }
};

// Appends operands, too.
template <typename T, typename Operands, typename Numbers>
struct Writer : AttributeWriter<Numbers> {
  Writer(Operands& to_outputs, Operands& to_inputs, Numbers& to_numbers)
      : AttributeWriter<Numbers>{to_numbers}, outputs(to_outputs), inputs(to_inputs) {}
  void Output(const T& from, std::string_view, uint8_t = kPlain) { outputs.push_back(from); }
  void Input(const T& from, std::string_view, uint8_t = kPlain) { inputs.push_back(from); }

  Operands& outputs;
  Operands& inputs;
};

}  // namespace internal

// Returns `of` with the operands and attributes that the struct names.
template <template <typename> class Named>
consteval FamilyDescriptor Described(FamilyDescriptor of) {
  constexpr const internal::Description& kNames = internal::kDescription<Named>;
  of.outputs = std::span(kNames.outputs).first(kNames.output_count);
  of.inputs = std::span(kNames.inputs).first(kNames.input_count);
  of.attributes = std::span(kNames.attributes).first(kNames.attribute_count);
  of.lists = kNames.lists;
  return of;
}

// Names a call's operands and attributes; lists of tensors have no names here. Attributes that the call omits
// keep the struct's own values. REQUIRES: the call outlives the result.
template <template <typename> class Named>
Named<Given> Read(const Call& call) {
  Named<Given> named;
  internal::Reader reader(call);
  Named<Given>::Visit(named, reader);
  return named;
}

// Names outputs that are to be set. Those that the caller does not want are null.
template <template <typename> class Named>
Named<Operand*> Outputs(std::span<Operand> outputs) {
  Named<Operand*> named{};
  internal::OutputNamer namer(outputs);
  Named<Operand*>::Visit(named, namer);
  return named;
}

template <template <typename> class Named>
Sample SampleOf(const Named<Sample::Tensor>& named) {
  Sample sample;
  internal::Writer<Sample::Tensor, std::vector<Sample::Tensor>, std::vector<Number>> writer{
      sample.outputs, sample.inputs, sample.attributes};
  Named<Sample::Tensor>::Visit(named, writer);
  return sample;
}

// Returns the attributes of a call whose operands are in lists.
template <template <typename> class Named>
std::vector<Number> AttributesOf(const Named<internal::Nothing>& named) {
  std::vector<Number> numbers;
  internal::AttributeWriter<std::vector<Number>> writer{numbers};
  Named<internal::Nothing>::Visit(named, writer);
  return numbers;
}

// A named call in the order of the wire. Absent outputs at the end, and attributes at the end that have their
// defaults, are omitted.
template <template <typename> class Named>
class NamedOpCall {
 public:
  explicit NamedOpCall(const Named<TensorRef>& named) {
    internal::Writer<TensorRef, Operands, Numbers> writer{outputs_, inputs_, attributes_};
    Named<TensorRef>::Visit(named, writer);
    attributes_.resize(writer.needed);
    while (!outputs_.empty() && outputs_.back().kind == TensorRef::Kind::kAbsent) outputs_.pop_back();
  }

  // REQUIRES: this object and the tensors' sizes and strides outlive the result.
  OpCall Of(const Row& row, DType compute) const {
    XPUD_CHECK(DescriptorOf(row).inputs.size() == inputs_.size());
    return {
        .row = &row, .compute = compute, .outputs = outputs_, .inputs = inputs_, .attributes = attributes_};
  }

 private:
  using Operands = absl::InlinedVector<TensorRef, 8>;
  using Numbers = absl::InlinedVector<Number, 24>;
  Operands outputs_, inputs_;
  Numbers attributes_;
};

}  // namespace xpud::ops
