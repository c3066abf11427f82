// Formats an event as a printable line, whatever the daemon sent. Pure functions, except for the time zone.
#pragma once

#include <string>

#include "proto/control/xpud.pb.h"

namespace xpud::xpuctl {

// `last` is the sequence of the event shown before. If numbers are missing in between, a line says how many.
std::string EventText(const v1::Event& event, uint64_t last);

// Formats a line of the daemon's log.
std::string LogText(const v1::LogLine& line);

}  // namespace xpud::xpuctl
