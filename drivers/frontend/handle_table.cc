#include "drivers/frontend/handle_table.h"

#include <sys/mman.h>

namespace xpud::drivers {

HandleTable::FreeSlots& HandleTable::free_slots() {
  static FreeSlots& slots = *new FreeSlots;  // never destroyed: the loader may call us at exit
  return slots;
}

bool HandleTable::Start() {
  static const bool started = [] {
    constexpr size_t kBytes = kSlots * sizeof(Slot);
    void* range =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return false;
    base_ = reinterpret_cast<uintptr_t>(range);
    bytes_ = kBytes;
    return true;
  }();
  return started;
}

HandleTable::Slot* HandleTable::TakeSlot() {
  FreeSlots& slots = free_slots();
  MutexLock lock(slots.mutex);
  if (slots.freed.size() > kQuarantine || slots.used == kSlots) {
    if (slots.freed.empty()) return nullptr;
    Slot* slot = slots.freed.front();
    slots.freed.pop_front();
    return slot;
  }
  return reinterpret_cast<Slot*>(base_) + slots.used++;
}

bool HandleTable::Insert(Object* object, uint64_t tag) {
  Slot* slot = bytes_ == 0 ? nullptr : TakeSlot();
  if (slot == nullptr) return false;
  object->handle_ = slot;
  slot->object = object;
  slot->tag.store(tag, std::memory_order_release);
  return true;
}

bool HandleTable::Erase(void* handle, uint64_t tag) {
  Slot* slot = static_cast<Slot*>(handle);
  if (!slot->tag.compare_exchange_strong(tag, 0, std::memory_order_acq_rel)) return false;
  FreeSlots& slots = free_slots();
  MutexLock lock(slots.mutex);
  slots.freed.push_back(slot);
  return true;
}

}  // namespace xpud::drivers
