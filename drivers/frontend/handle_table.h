// Maps objects to handles and back. A handle is the address of a slot in one reserved range, so a null,
// foreign, stale or wrongly typed handle is recognised without touching freed memory. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "drivers/frontend/object.h"
#include "proto/base/mutex.h"

namespace xpud::drivers {

class HandleTable {
 public:
  // Reserves the address range. Idempotent. Returns false if the address space is exhausted.
  static bool Start();

  // Takes ownership. Returns null if every slot is in use.
  template <typename T>
  static typename T::Handle Add(std::unique_ptr<T> object) {
    Object* base = object.get();
    if (!Insert(base, Tag(T::kKind))) return nullptr;
    return reinterpret_cast<typename T::Handle>(object.release()->handle());
  }

  // Returns null unless this is a live handle of this kind.
  template <typename T>
  static T* Find(typename T::Handle handle) {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - base_;
    if (offset >= bytes_ || offset % sizeof(Slot) != 0) return nullptr;
    const Slot& slot = *reinterpret_cast<const Slot*>(handle);
    if (slot.tag.load(std::memory_order_acquire) != Tag(T::kKind)) return nullptr;
    return static_cast<T*>(slot.object);
  }

  // Invalidates the handle and returns the object; null as for Find.
  template <typename T>
  static std::unique_ptr<T> Remove(typename T::Handle handle) {
    T* object = Find<T>(handle);
    if (object == nullptr || !Erase(reinterpret_cast<void*>(handle), Tag(T::kKind))) return nullptr;
    return std::unique_ptr<T>(object);
  }

 private:
  struct Slot {
    std::atomic<uint64_t> tag;
    Object* object;
  };
  // Freed slots are reused in turn, and only when this many wait, so that a stale handle stays stale for
  // long.
  static constexpr size_t kQuarantine = 4096;
  static constexpr size_t kSlots = size_t{1} << 22;

  static constexpr uint64_t Tag(Kind kind) { return 0x7870756400000000ull | static_cast<uint32_t>(kind); }
  static bool Insert(Object* object, uint64_t tag);
  static bool Erase(void* handle, uint64_t tag);
  static Slot* TakeSlot();

  static inline uintptr_t base_ = 0;
  static inline uintptr_t bytes_ = 0;

  struct FreeSlots {
    Mutex mutex;
    size_t used ABSL_GUARDED_BY(mutex) = 0;
    std::deque<Slot*> freed ABSL_GUARDED_BY(mutex);
  };
  static FreeSlots& free_slots();
};

}  // namespace xpud::drivers
