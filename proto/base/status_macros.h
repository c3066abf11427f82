// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)            \
  do {                                         \
    ::absl::Status xpud_status = (expression); \
    if (!xpud_status.ok()) [[unlikely]]        \
      return xpud_status;                      \
  } while (0)

#define XPUD_CONCAT_INNER(a, b) a##b
#define XPUD_CONCAT(a, b) XPUD_CONCAT_INNER(a, b)

#define ASSIGN_OR_RETURN(target, expression) \
  XPUD_ASSIGN_OR_RETURN(XPUD_CONCAT(xpud_statusor_, __LINE__), target, expression)

#define XPUD_ASSIGN_OR_RETURN(statusor, target, expression) \
  auto statusor = (expression);                             \
  if (!statusor.ok()) [[unlikely]]                          \
    return statusor.status();                               \
  target = *std::move(statusor)
