// Fills the tables that the loader requests. An entry is written only if the requested version has it,
// because an older loader's table ends before it.
#pragma once

#include <level_zero/ze_api.h>

namespace xpud::drivers {

template <typename Function>
struct Unsupported;
template <typename... Arguments>
struct Unsupported<ze_result_t (*)(Arguments...)> {
  static ze_result_t ZE_APICALL Call(Arguments...) { return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; }
};

class TableWriter {
 public:
  explicit TableWriter(ze_api_version_t asked) : asked_(asked) {}

  template <typename Function>
  void Put(Function& slot, Function function, ze_api_version_t since = ZE_API_VERSION_1_0) const {
    if (since <= asked_) slot = function;
  }
  template <typename... Functions>
  void PutUnsupported(ze_api_version_t since, Functions&... slots) const {
    if (since <= asked_) ((slots = Unsupported<Functions>::Call), ...);
  }

 private:
  ze_api_version_t asked_;
};

template <typename Table>
ze_result_t FillTable(ze_api_version_t asked, Table* table, void (*fill)(const TableWriter&, Table&)) {
  if (table == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (ZE_MAJOR_VERSION(asked) != ZE_MAJOR_VERSION(ZE_API_VERSION_CURRENT)) {
    return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
  }
  fill(TableWriter(asked), *table);
  return ZE_RESULT_SUCCESS;
}

}  // namespace xpud::drivers

// Defines an exported getter; the body fills `table` through `put`.
#define XPUD_DDI_TABLE(getter, table_type)                                                                  \
  static void Fill_##getter(const ::xpud::drivers::TableWriter& put, table_type& table);                    \
  extern "C" __attribute__((visibility("default"))) ze_result_t ZE_APICALL getter(ze_api_version_t version, \
                                                                                  table_type* table) {      \
    return ::xpud::drivers::FillTable(version, table, Fill_##getter);                                       \
  }                                                                                                         \
  static void Fill_##getter([[maybe_unused]] const ::xpud::drivers::TableWriter& put,                       \
                            [[maybe_unused]] table_type& table)
