#include "drivers/frontend/reservation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace xpud::drivers {

Reservation::Reservation(std::unique_ptr<AddressRange> range) : range_(std::move(range)) {
  access_[range_->base()] = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
}

// A failure here means that the device is lost, and its mappings with it.
Reservation::~Reservation() {
  for (const auto& [base, mapped] : mappings_) static_cast<void>(range_->Unmap(base, mapped.size));
}

ze_result_t Reservation::Map(const MappedMemory& mapped, ze_memory_access_attribute_t access) {
  std::byte* const end = mapped.base + mapped.size;
  const auto next = FirstAfter(mapped.base);
  if (next != mappings_.end() && next->first < end) return ZE_RESULT_ERROR_OVERLAPPING_REGIONS;
  const auto added = mappings_.emplace_hint(next, mapped.base, mapped);
  const ze_result_t result =
      range_->Map(mapped.base, mapped.size, mapped.memory->block(), mapped.offset, access);
  if (result == ZE_RESULT_SUCCESS)
    NoteAccess(mapped.base, end, access);
  else
    mappings_.erase(added);
  return result;
}

ze_result_t Reservation::Unmap(std::byte* address, size_t size) {
  std::byte* const end = address + size;
  if (MustDivide(address, end)) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  for (auto next = FirstAfter(address); next != mappings_.end() && next->first < end;) {
    std::byte* const from = std::max(address, next->first);
    std::byte* const to = std::min(end, next->first + next->second.size);
    const ze_result_t result = range_->Unmap(from, static_cast<size_t>(to - from));
    if (result != ZE_RESULT_SUCCESS) return result;
    NoteAccess(from, to, ZE_MEMORY_ACCESS_ATTRIBUTE_NONE);
    next = Remove(next, from, to);
  }
  NoteAccess(address, end, ZE_MEMORY_ACCESS_ATTRIBUTE_NONE);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Reservation::SetAccess(std::byte* address, size_t size, ze_memory_access_attribute_t access) {
  std::byte* const end = address + size;
  if (MustDivide(address, end)) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  for (auto next = FirstAfter(address); next != mappings_.end() && next->first < end; ++next) {
    std::byte* const from = std::max(address, next->first);
    std::byte* const to = std::min(end, next->first + next->second.size);
    const ze_result_t result =
        range_->SetAccess(from, static_cast<size_t>(to - from), next->second.memory->block(), access);
    if (result != ZE_RESULT_SUCCESS) return result;
    NoteAccess(from, to, access);
  }
  NoteAccess(address, end, access);
  return ZE_RESULT_SUCCESS;
}

size_t Reservation::GetAccess(std::byte* address, size_t size, ze_memory_access_attribute_t& access) const {
  auto next = access_.upper_bound(address);
  access = std::prev(next)->second;
  while (next != access_.end() && next->second == access) ++next;
  std::byte* const same_until = next == access_.end() ? end() : next->first;
  return std::min(size, static_cast<size_t>(same_until - address));
}

const MappedMemory* Reservation::Find(const std::byte* address) const {
  const auto found = FirstAfter(address);
  return found != mappings_.end() && found->first <= address ? &found->second : nullptr;
}

bool Reservation::Maps(const PhysicalMemory& memory) const {
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [&](const auto& mapping) { return mapping.second.memory == &memory; });
}

Reservation::Mappings::const_iterator Reservation::FirstAfter(const std::byte* address) const {
  const auto next = mappings_.upper_bound(const_cast<std::byte*>(address));
  if (next == mappings_.begin()) return next;
  const auto before = std::prev(next);
  return before->first + before->second.size > address ? before : next;
}

bool Reservation::MustDivide(const std::byte* address, const std::byte* end) const {
  const auto cuts = [&](const std::byte* at) {
    const MappedMemory* const mapped = at == this->end() ? nullptr : Find(at);
    return mapped != nullptr && mapped->base != at;
  };
  return !range_->divides_mappings() && (cuts(address) || cuts(end));
}

Reservation::Mappings::const_iterator Reservation::Remove(Mappings::const_iterator mapping,
                                                          std::byte* address, std::byte* end) {
  const MappedMemory whole = mapping->second;
  auto next = mappings_.erase(mapping);
  std::byte* const whole_end = whole.base + whole.size;
  if (end < whole_end) {
    const size_t cut = static_cast<size_t>(end - whole.base);
    next = mappings_.emplace_hint(next, end,
                                  MappedMemory{end, whole.size - cut, whole.memory, whole.offset + cut});
  }
  if (address > whole.base) {
    const size_t kept = static_cast<size_t>(address - whole.base);
    mappings_.emplace_hint(next, whole.base, MappedMemory{whole.base, kept, whole.memory, whole.offset});
  }
  return next;
}

void Reservation::NoteAccess(std::byte* address, std::byte* end, ze_memory_access_attribute_t access) {
  const auto after = access_.upper_bound(end);
  if (end != this->end()) access_.emplace(end, std::prev(after)->second);  // unless there is one
  access_.erase(access_.lower_bound(address), access_.lower_bound(end));
  access_.emplace(address, access);
}

}  // namespace xpud::drivers
