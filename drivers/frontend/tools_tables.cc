// Tools (zet): the loader requires these tables; every entry returns UNSUPPORTED_FEATURE.
#include <level_zero/zet_ddi.h>

#include "drivers/frontend/table.h"

XPUD_DDI_TABLE(zetGetDeviceProcAddrTable, zet_device_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetDebugProperties);
}

XPUD_DDI_TABLE(zetGetContextProcAddrTable, zet_context_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnActivateMetricGroups);
}

XPUD_DDI_TABLE(zetGetCommandListProcAddrTable, zet_command_list_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnAppendMetricStreamerMarker, table.pfnAppendMetricQueryBegin,
                     table.pfnAppendMetricQueryEnd, table.pfnAppendMetricMemoryBarrier);
}

XPUD_DDI_TABLE(zetGetModuleProcAddrTable, zet_module_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetDebugInfo);
}

XPUD_DDI_TABLE(zetGetKernelProcAddrTable, zet_kernel_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProfileInfo);
}

XPUD_DDI_TABLE(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGet, table.pfnGetProperties,
                     table.pfnCalculateMetricValues);
}

XPUD_DDI_TABLE(zetGetMetricGroupExpProcAddrTable, zet_metric_group_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_2, table.pfnCalculateMultipleMetricValuesExp);
}

XPUD_DDI_TABLE(zetGetMetricProcAddrTable, zet_metric_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGet, table.pfnGetProperties);
}

XPUD_DDI_TABLE(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnOpen, table.pfnClose, table.pfnReadData);
}

XPUD_DDI_TABLE(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnCreate, table.pfnDestroy);
}

XPUD_DDI_TABLE(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnCreate, table.pfnDestroy, table.pfnReset, table.pfnGetData);
}

XPUD_DDI_TABLE(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnCreate, table.pfnDestroy, table.pfnSetPrologues,
                     table.pfnSetEpilogues, table.pfnSetEnabled);
}

XPUD_DDI_TABLE(zetGetDebugProcAddrTable, zet_debug_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnAttach, table.pfnDetach, table.pfnReadEvent,
                     table.pfnAcknowledgeEvent, table.pfnInterrupt, table.pfnResume, table.pfnReadMemory,
                     table.pfnWriteMemory, table.pfnGetRegisterSetProperties, table.pfnReadRegisters,
                     table.pfnWriteRegisters);
}
