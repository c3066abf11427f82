// Shared parts of entry points: handle look-up with the right error, count-and-array results, and catching
// exceptions.
#pragma once

#include <level_zero/ze_api.h>

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "drivers/frontend/command_list.h"
#include "drivers/frontend/handle_table.h"

namespace xpud::drivers {

// Sets `name` to the handle's object, or returns the error from the entry point.
#define XPUD_FIND(Type, name, handle)                                                                    \
  Type* const name##_pointer = HandleTable::Find<Type>(handle);                                          \
  if (name##_pointer == nullptr) [[unlikely]] {                                                          \
    return (handle) == nullptr ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE : ZE_RESULT_ERROR_INVALID_ARGUMENT; \
  }                                                                                                      \
  Type& name = *name##_pointer

#define XPUD_REQUIRE(condition, error) \
  if (!(condition)) [[unlikely]]       \
  return error

#define XPUD_NOT_NULL(pointer) XPUD_REQUIRE((pointer) != nullptr, ZE_RESULT_ERROR_INVALID_NULL_POINTER)

// Exceptions must not cross the C boundary. Only allocation, and starting a thread, can throw here.
template <typename Body>
ze_result_t Guard(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  } catch (const std::system_error&) {  // no thread left
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  } catch (...) {
    return ZE_RESULT_ERROR_UNKNOWN;
  }
}

// Runs `create(std::unique_ptr<T>&)` and returns the object as a handle.
template <typename T, typename Create>
ze_result_t CreateInto(typename T::Handle* handle, Create&& create) {
  return Guard([&]() -> ze_result_t {
    std::unique_ptr<T> object;
    const ze_result_t result = create(object);
    if (result != ZE_RESULT_SUCCESS) return result;
    *handle = HandleTable::Add(std::move(object));
    return *handle == nullptr ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_SUCCESS;
  });
}

template <typename T>
ze_result_t Destroy(typename T::Handle handle) {
  XPUD_REQUIRE(handle != nullptr, ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
  return HandleTable::Remove<T>(handle) == nullptr ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_SUCCESS;
}

// Level Zero's two-call idiom: with a zero count, returns the count. `write(destination, element)` copies one
// element.
template <typename Range, typename T, typename Write>
ze_result_t Answer(const Range& range, uint32_t* count, T* out, Write&& write) {
  const uint32_t size = static_cast<uint32_t>(std::size(range));
  if (*count == 0 || *count > size) *count = size;
  if (out == nullptr) return ZE_RESULT_SUCCESS;
  for (uint32_t i = 0; i < *count; ++i) write(out[i], range[i]);
  return ZE_RESULT_SUCCESS;
}

// Fills a structure with a header, keeping the application's stype and pNext.
template <typename T>
void AssignKeepingChain(T& out, const T& value) {
  const auto stype = out.stype;
  auto* const next = out.pNext;
  out = value;
  out.stype = stype;
  out.pNext = next;
}

// The objects behind an array of handles, all of one driver. Small arrays need no allocation.
template <typename T>
class Resolved {
 public:
  ze_result_t Resolve(const Driver* driver, uint32_t count, const typename T::Handle* handles) {
    if (count == 0) return ZE_RESULT_SUCCESS;
    XPUD_REQUIRE(handles != nullptr, ZE_RESULT_ERROR_INVALID_SIZE);
    T** out = few_;
    if (count > std::size(few_)) {
      many_.resize(count);
      out = many_.data();
    }
    for (uint32_t i = 0; i < count; ++i) {
      XPUD_FIND(T, object, handles[i]);
      XPUD_REQUIRE(object.driver() == driver, ZE_RESULT_ERROR_INVALID_ARGUMENT);
      out[i] = &object;
    }
    objects_ = {out, count};
    return ZE_RESULT_SUCCESS;
  }
  std::span<T* const> objects() const { return objects_; }

 private:
  T* few_[8];
  std::vector<T*> many_;
  std::span<T* const> objects_;
};

// Resolves the events of an append and calls `append(const Sync&)`.
template <typename Append>
ze_result_t WithSync(const CommandList& list, ze_event_handle_t signal_handle, uint32_t num_waits,
                     ze_event_handle_t* wait_handles, Append&& append) {
  return Guard([&]() -> ze_result_t {
    Sync sync;
    if (signal_handle != nullptr) {
      sync.signal = HandleTable::Find<Event>(signal_handle);
      const bool ours = sync.signal != nullptr && sync.signal->driver() == list.driver();
      XPUD_REQUIRE(ours, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    }
    if (num_waits == 0) return append(static_cast<const Sync&>(sync));
    Resolved<Event> waits;
    const ze_result_t result = waits.Resolve(list.driver(), num_waits, wait_handles);
    if (result == ZE_RESULT_ERROR_INVALID_SIZE) return result;
    XPUD_REQUIRE(result == ZE_RESULT_SUCCESS, ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
    sync.waits = waits.objects();
    return append(static_cast<const Sync&>(sync));
  });
}

}  // namespace xpud::drivers
