// Functions that record and replay graphs, found by name; see proto/base/ze_ext.h.
#pragma once

#include "proto/base/ze_ext.h"

namespace xpud::drivers {

ze_result_t BeginGraphCapture(ze_command_list_handle_t list, void* next);
ze_result_t EndGraphCapture(ze_command_list_handle_t list, xpud_graph_handle_t* graph, void* next);
ze_result_t CountCaptured(ze_command_list_handle_t list, uint32_t* count);
ze_result_t InstantiateGraph(xpud_graph_handle_t graph, xpud_executable_graph_handle_t* executable,
                             void* next);
ze_result_t AppendGraph(ze_command_list_handle_t list, xpud_executable_graph_handle_t executable, void* next,
                        ze_event_handle_t signal, uint32_t num_waits, ze_event_handle_t* waits);
ze_result_t GraphDestroy(xpud_graph_handle_t graph);
ze_result_t ExecutableGraphDestroy(xpud_executable_graph_handle_t executable);

}  // namespace xpud::drivers
