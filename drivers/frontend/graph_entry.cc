#include "drivers/frontend/graph_entry.h"

#include "drivers/frontend/entry.h"
#include "drivers/frontend/graph.h"

namespace xpud::drivers {

ze_result_t BeginGraphCapture(ze_command_list_handle_t handle, void* next) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_REQUIRE(next == nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_REQUIRE(list.immediate(), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
  return Guard([&] { return list.BeginCapture(); });
}

ze_result_t EndGraphCapture(ze_command_list_handle_t handle, xpud_graph_handle_t* graph, void* next) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(graph);
  XPUD_REQUIRE(next == nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  XPUD_REQUIRE(list.immediate(), ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
  return CreateInto<Graph>(graph, [&](std::unique_ptr<Graph>& out) { return list.EndCapture(out); });
}

ze_result_t CountCaptured(ze_command_list_handle_t handle, uint32_t* count) {
  XPUD_FIND(CommandList, list, handle);
  XPUD_NOT_NULL(count);
  return list.CountCaptured(*count);
}

ze_result_t InstantiateGraph(xpud_graph_handle_t handle, xpud_executable_graph_handle_t* executable,
                             void* next) {
  XPUD_FIND(Graph, graph, handle);
  XPUD_NOT_NULL(executable);
  XPUD_REQUIRE(next == nullptr, ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return CreateInto<ExecutableGraph>(
      executable, [&](std::unique_ptr<ExecutableGraph>& out) { return graph.Instantiate(out); });
}

ze_result_t AppendGraph(ze_command_list_handle_t list_handle, xpud_executable_graph_handle_t graph_handle,
                        void* next, ze_event_handle_t signal, uint32_t num_waits, ze_event_handle_t* waits) {
  XPUD_FIND(CommandList, list, list_handle);
  XPUD_FIND(ExecutableGraph, graph, graph_handle);
  XPUD_REQUIRE(next == nullptr && graph.driver() == list.driver(), ZE_RESULT_ERROR_INVALID_ARGUMENT);
  return WithSync(list, signal, num_waits, waits,
                  [&](const Sync& sync) { return list.AppendGraph(graph, sync); });
}

ze_result_t GraphDestroy(xpud_graph_handle_t graph) { return Destroy<Graph>(graph); }

ze_result_t ExecutableGraphDestroy(xpud_executable_graph_handle_t executable) {
  return Destroy<ExecutableGraph>(executable);
}

}  // namespace xpud::drivers
