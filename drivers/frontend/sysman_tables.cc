// System management (zes): the loader requires these tables. Entries return UNSUPPORTED_FEATURE, except those
// that read a device's sensors (sensor_entry.cc).
#include <level_zero/zes_ddi.h>

#include "drivers/frontend/sensor_entry.h"
#include "drivers/frontend/table.h"

XPUD_DDI_TABLE(zesGetDriverProcAddrTable, zes_driver_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnEventListen);
  put.PutUnsupported(ZE_API_VERSION_1_1, table.pfnEventListenEx);
}

XPUD_DDI_TABLE(zesGetDeviceProcAddrTable, zes_device_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetState, table.pfnReset,
                     table.pfnProcessesGetState, table.pfnPciGetProperties, table.pfnPciGetState,
                     table.pfnPciGetBars, table.pfnPciGetStats, table.pfnEnumDiagnosticTestSuites,
                     table.pfnEnumEngineGroups, table.pfnEventRegister, table.pfnEnumFabricPorts,
                     table.pfnEnumFans, table.pfnEnumFirmwares, table.pfnEnumFrequencyDomains,
                     table.pfnEnumLeds, table.pfnEnumMemoryModules, table.pfnEnumPerformanceFactorDomains,
                     table.pfnEnumPowerDomains, table.pfnGetCardPowerDomain, table.pfnEnumPsus,
                     table.pfnEnumRasErrorSets, table.pfnEnumSchedulers, table.pfnEnumStandbyDomains,
                     table.pfnEnumTemperatureSensors);
  put.PutUnsupported(ZE_API_VERSION_1_4, table.pfnEccAvailable, table.pfnEccConfigurable,
                     table.pfnGetEccState, table.pfnSetEccState);
  ::xpud::drivers::PutSensors(put, table);
}

XPUD_DDI_TABLE(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetCurrentMode,
                     table.pfnGetTimeoutModeProperties, table.pfnGetTimesliceModeProperties,
                     table.pfnSetTimeoutMode, table.pfnSetTimesliceMode, table.pfnSetExclusiveMode,
                     table.pfnSetComputeUnitDebugMode);
}

XPUD_DDI_TABLE(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetConfig, table.pfnSetConfig);
}

XPUD_DDI_TABLE(zesGetPowerProcAddrTable, zes_power_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetEnergyCounter,
                     table.pfnGetLimits, table.pfnSetLimits, table.pfnGetEnergyThreshold,
                     table.pfnSetEnergyThreshold);
  put.PutUnsupported(ZE_API_VERSION_1_4, table.pfnGetLimitsExt, table.pfnSetLimitsExt);
  ::xpud::drivers::PutSensors(put, table);
}

XPUD_DDI_TABLE(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetAvailableClocks,
                     table.pfnGetRange, table.pfnSetRange, table.pfnGetState, table.pfnGetThrottleTime,
                     table.pfnOcGetCapabilities, table.pfnOcGetFrequencyTarget, table.pfnOcSetFrequencyTarget,
                     table.pfnOcGetVoltageTarget, table.pfnOcSetVoltageTarget, table.pfnOcSetMode,
                     table.pfnOcGetMode, table.pfnOcGetIccMax, table.pfnOcSetIccMax, table.pfnOcGetTjMax,
                     table.pfnOcSetTjMax);
  ::xpud::drivers::PutSensors(put, table);
}

XPUD_DDI_TABLE(zesGetEngineProcAddrTable, zes_engine_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetActivity);
}

XPUD_DDI_TABLE(zesGetStandbyProcAddrTable, zes_standby_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetMode, table.pfnSetMode);
}

XPUD_DDI_TABLE(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnFlash);
}

XPUD_DDI_TABLE(zesGetMemoryProcAddrTable, zes_memory_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetState, table.pfnGetBandwidth);
  ::xpud::drivers::PutSensors(put, table);
}

XPUD_DDI_TABLE(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetLinkType, table.pfnGetConfig,
                     table.pfnSetConfig, table.pfnGetState, table.pfnGetThroughput);
}

XPUD_DDI_TABLE(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetConfig, table.pfnSetConfig,
                     table.pfnGetState);
  ::xpud::drivers::PutSensors(put, table);
}

XPUD_DDI_TABLE(zesGetPsuProcAddrTable, zes_psu_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetState);
}

XPUD_DDI_TABLE(zesGetFanProcAddrTable, zes_fan_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetConfig, table.pfnSetDefaultMode,
                     table.pfnSetFixedSpeedMode, table.pfnSetSpeedTableMode, table.pfnGetState);
}

XPUD_DDI_TABLE(zesGetLedProcAddrTable, zes_led_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetState, table.pfnSetState,
                     table.pfnSetColor);
}

XPUD_DDI_TABLE(zesGetRasProcAddrTable, zes_ras_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetConfig, table.pfnSetConfig,
                     table.pfnGetState);
}

XPUD_DDI_TABLE(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t) {
  put.PutUnsupported(ZE_API_VERSION_1_0, table.pfnGetProperties, table.pfnGetTests, table.pfnRunTests);
}
