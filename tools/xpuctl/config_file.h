// Where a machine has its configuration.
#pragma once

#define XPUD_CONFIG_FILE "/etc/xpud/xpud.yaml"
