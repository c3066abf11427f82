// The path of a machine's configuration file.
#pragma once

#define XPUD_CONFIG_FILE "/etc/xpud/xpud.yaml"
