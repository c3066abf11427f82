// A captured graph, and its executable form, which can be appended as one command. Immutable.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>

#include "drivers/frontend/object.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {

class ExecutableGraph;

class Graph : public Object {
 public:
  using Object::Object;
  using Handle = xpud_graph_handle_t;
  static constexpr Kind kKind = Kind::kGraph;

  virtual ze_result_t Instantiate(std::unique_ptr<ExecutableGraph>& executable) const = 0;
};

class ExecutableGraph : public Object {
 public:
  using Object::Object;
  using Handle = xpud_executable_graph_handle_t;
  static constexpr Kind kKind = Kind::kExecutableGraph;
};

}  // namespace xpud::drivers
