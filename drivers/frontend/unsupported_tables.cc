// Core tables that no back end implements: images, samplers, fabric.
#include <level_zero/ze_ddi.h>

#include "drivers/frontend/table.h"

XPUD_DDI_TABLE(zeGetImageProcAddrTable, ze_image_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnCreate, table.pfnDestroy);
  put.PutUnsupported(ZE_API_VERSION_1_3, table.pfnGetAllocPropertiesExt);
}

XPUD_DDI_TABLE(zeGetImageExpProcAddrTable, ze_image_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_2, table.pfnGetMemoryPropertiesExp, table.pfnViewCreateExp);
}

XPUD_DDI_TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnCreate, table.pfnDestroy);
}

XPUD_DDI_TABLE(zeGetFabricVertexExpProcAddrTable, ze_fabric_vertex_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_4, table.pfnGetExp, table.pfnGetSubVerticesExp,
                     table.pfnGetPropertiesExp, table.pfnGetDeviceExp);
}

XPUD_DDI_TABLE(zeGetFabricEdgeExpProcAddrTable, ze_fabric_edge_exp_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_4, table.pfnGetExp, table.pfnGetVerticesExp, table.pfnGetPropertiesExp);
}
