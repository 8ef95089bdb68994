// The driver's functions for streams, events, graphs and copies.
#include <cstring>

#include "access_checks.h"
#include "driver_exports.h"
#include "faults.h"
#include "handles.h"

namespace tessera::emulated_gpu {

Event* event_of(cuda::CUevent handle, const char* call) {
  return object_of(Handle::kEvent, machine().events, handle, call, "event");
}

namespace {

using namespace cuda;

Range reads(const void* at, size_t bytes) {
  return {static_cast<const std::byte*>(at), static_cast<int64_t>(bytes), false};
}
Range writes(const void* at, size_t bytes) {
  return {static_cast<const std::byte*>(at), static_cast<int64_t>(bytes), true};
}

bool is_live(const void* at, size_t bytes, const char* label) {
  return machine().memory_of(at, static_cast<int64_t>(bytes), label) != nullptr;
}

// What both ends of a copy must be at the call.
bool on_device(const void* at, size_t bytes, const char* call) {
  const Memory* memory = machine().memory_of(at, static_cast<int64_t>(bytes), call);
  if (!memory) return false;
  if (memory->device == current_device()) return true;
  found(std::string(call) + ": the address is not in memory of the current device");
  return false;
}
// Pinned memory, or memory of which the driver knows nothing.
bool on_host(const void* at, size_t bytes, const char* call, bool* pinned) {
  const Memory* memory = machine().memory_at(at);
  *pinned = memory != nullptr;
  if (!memory) return true;
  if (memory->device >= 0) {
    found(std::string(call) + ": the host's address is in memory of a device");
    return false;
  }
  return machine().memory_of(at, static_cast<int64_t>(bytes), call) != nullptr;
}

Body copy_now(void* to, const void* from, size_t bytes, const char* label) {
  return [=]() -> std::vector<Range> {
    if (!is_live(to, bytes, label) || !is_live(from, bytes, label)) return {};
    std::memmove(to, from, bytes);
    simt::copy_written(to, from, bytes);
    return {reads(from, bytes), writes(to, bytes)};
  };
}

Body copy_from_pinned(void* to, const void* from, size_t bytes) {
  Machine& m = machine();
  const auto before = std::make_shared<Snapshot>(m.snapshot(from, static_cast<int64_t>(bytes)));
  return [=]() -> std::vector<Range> {
    constexpr const char* kLabel = "copy to the device";
    if (!is_live(to, bytes, kLabel) || !is_live(from, bytes, kLabel)) return {};
    if (machine().changed_since(*before)) {
      found("host: pinned memory was changed before its copy to the device was done");
    }
    std::memcpy(to, from, bytes);
    simt::set_written(to, bytes);
    return {reads(from, bytes), writes(to, bytes)};
  };
}

Body copy_to_pinned(void* to, const void* from, size_t bytes) {
  Machine& m = machine();
  const auto before = std::make_shared<Snapshot>(m.snapshot(to, static_cast<int64_t>(bytes)));
  return [=]() -> std::vector<Range> {
    constexpr const char* kLabel = "copy to the host";
    if (!is_live(to, bytes, kLabel) || !is_live(from, bytes, kLabel)) return {};
    if (machine().changed_since(*before)) {
      found("host: pinned memory was changed before a copy from the device to it was done");
    }
    if (!simt::is_written(from, bytes)) {
      found("copy to the host: reads what nobody has written");
    }
    std::memcpy(to, from, bytes);
    return {reads(from, bytes), writes(to, bytes)};
  };
}

CUresult copy_from_pageable(Stream& stream, void* to, const void* from, size_t bytes) {
  // The driver has copied it to memory of its own when the call returns.
  const auto* at = static_cast<const std::byte*>(from);
  const auto staged = std::make_shared<std::vector<std::byte>>(at, at + bytes);
  Work work;
  work.label = "copy to the device";
  work.prepare = [=] {
    return [=]() -> std::vector<Range> {
      if (!is_live(to, bytes, "copy to the device")) return {};
      std::memcpy(to, staged->data(), bytes);
      simt::set_written(to, bytes);
      return {writes(to, bytes)};
    };
  };
  return machine().add(stream, std::move(work));
}

CUresult copy_to_pageable(Stream& stream, void* to, const void* from, size_t bytes) {
  Machine& m = machine();
  fault_at("copy");
  Work work;
  work.label = "copy to the host";
  work.prepare = [=] {
    return [=]() -> std::vector<Range> {
      if (!is_live(from, bytes, "copy to the host")) return {};
      if (!simt::is_written(from, bytes)) {
        found("copy to the host: reads what nobody has written");
      }
      std::memcpy(to, from, bytes);
      return {reads(from, bytes)};
    };
  };
  m.add(stream, std::move(work));
  const Point end = stream;
  m.run_until(end.last);
  m.host_saw(end);
  return m.devices[static_cast<size_t>(stream.device)].sticky;
}

bool pageable_in_capture(const Stream& stream, const char* call) {
  if (stream.capture < 0) return false;
  found(std::string("capture: ") + call + " with memory of the host that is not pinned");
  machine().captures[static_cast<size_t>(stream.capture)].invalid = true;
  return true;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;
#define TESSERA_STREAM(name)                   \
  Stream* const s = stream_of(name, __func__); \
  if (!s) return kCudaErrorInvalidHandle

extern "C" {

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  auto* target = reinterpret_cast<void*>(to);
  bool pinned = false;
  if (bytes == 0) return kCudaSuccess;
  if (!on_device(target, bytes, __func__) || !on_host(from, bytes, __func__, &pinned)) {
    return kCudaErrorInvalidValue;
  }
  if (!pinned && pageable_in_capture(*s, __func__)) return kCudaErrorStreamCaptureUnsupported;
  if (!pinned) return copy_from_pageable(*s, target, from, bytes);
  return machine().add(
      *s, {"copy to the device", [=] { return copy_from_pinned(target, from, bytes); }});
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  const auto* source = reinterpret_cast<const void*>(from);
  bool pinned = false;
  if (bytes == 0) return kCudaSuccess;
  if (!on_device(source, bytes, __func__) || !on_host(to, bytes, __func__, &pinned)) {
    return kCudaErrorInvalidValue;
  }
  if (!pinned && pageable_in_capture(*s, __func__)) return kCudaErrorStreamCaptureUnsupported;
  if (!pinned) return copy_to_pageable(*s, to, source, bytes);
  return machine().add(*s, {"copy to the host", [=] { return copy_to_pinned(to, source, bytes); }});
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  auto* target = reinterpret_cast<std::byte*>(to);
  const auto* source = reinterpret_cast<const std::byte*>(from);
  if (bytes == 0) return kCudaSuccess;
  // Memory of the host that is pinned has an address on the device too.
  if (!is_live(target, bytes, __func__) || !is_live(source, bytes, __func__)) {
    return kCudaErrorInvalidValue;
  }
  if (target < source + bytes && source < target + bytes) {
    found("copy on the device: the ranges overlap");
  }
  return machine().add(*s, {"copy on the device",
                            [=] { return copy_now(target, source, bytes, "copy on the device"); }});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  auto* target = reinterpret_cast<void*>(to);
  if (bytes == 0) return kCudaSuccess;
  if (!is_live(target, bytes, __func__)) return kCudaErrorInvalidValue;
  return machine().add(*s, {"fill", [=] {
                              return [=]() -> std::vector<Range> {
                                if (!is_live(target, bytes, "fill")) return {};
                                std::memset(target, value, bytes);
                                tessera::simt::set_written(target, bytes);
                                return {writes(target, bytes)};
                              };
                            }});
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  const bool blocking = !(flags & kStreamNonBlocking);
  const int number =
      m.add_stream(current_device(), blocking, "stream " + std::to_string(m.streams.size()));
  *stream = make_handle<CUstream>(Handle::kStream, number);
  return kCudaSuccess;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  TESSERA_DRIVER_CALL;
  if (!stream) return kCudaErrorInvalidHandle;
  TESSERA_STREAM(stream);
  if (s->capture >= 0) found("capture: the stream is destroyed");
  s->destroyed = true;  // what it holds is still done
  return kCudaSuccess;
}
CUresult cuStreamSynchronize(CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  Machine& m = machine();
  if (!m.may_call("cuStreamSynchronize")) return kCudaErrorStreamCaptureUnsupported;
  const Point end = *s;
  m.run_until(end.last);
  m.host_saw(end);
  return m.devices[static_cast<size_t>(s->device)].sticky;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  Event* const e = event_of(event, __func__);
  if (!e) return kCudaErrorInvalidHandle;
  if (s->device == 0 && machine().adds_order(*s, *e) &&
      ++machine().waits == machine().left_out_wait) {
    return kCudaSuccess;  // as a test asked for
  }
  return machine().wait(*s, *e);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  return machine().begin_capture(*s, mode);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  TESSERA_DRIVER_CALL;
  *graph = nullptr;
  TESSERA_STREAM(stream);
  int number = -1;
  const CUresult result = machine().end_capture(*s, &number);
  if (result == kCudaSuccess) *graph = make_handle<CUgraph>(Handle::kGraph, number);
  return result;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  const Captured* captured = object_of(Handle::kGraph, m.captures, graph, __func__, "graph");
  if (!captured) return kCudaErrorInvalidHandle;
  Executable e;
  e.graph = number_of(Handle::kGraph, graph);
  e.device = captured->device;
  m.executables.push_back(e);
  *executable =
      make_handle<CUgraphExec>(Handle::kExecutable, static_cast<int>(m.executables.size()) - 1);
  return kCudaSuccess;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  Machine& m = machine();
  Executable* e = object_of(Handle::kExecutable, m.executables, executable, __func__, "graph");
  if (!e) return kCudaErrorInvalidHandle;
  if (e->device != s->device) {
    found("cuGraphLaunch: the graph is of another device");
    return kCudaErrorInvalidValue;
  }
  if (s->capture >= 0) {
    found("capture: a graph is launched into a stream that is captured");
    return kCudaErrorStreamCaptureUnsupported;
  }
  m.replay(*e, *s);
  return kCudaSuccess;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  TESSERA_DRIVER_CALL;
  Executable* e =
      object_of(Handle::kExecutable, machine().executables, executable, __func__, "graph");
  if (!e) return kCudaErrorInvalidHandle;
  e->destroyed = true;
  machine().changed.notify_all();
  return kCudaSuccess;
}
CUresult cuGraphDestroy(CUgraph graph) {
  TESSERA_DRIVER_CALL;
  Captured* c = object_of(Handle::kGraph, machine().captures, graph, __func__, "graph");
  if (!c) return kCudaErrorInvalidHandle;
  c->destroyed = true;  // executables made of it go on
  machine().changed.notify_all();
  return kCudaSuccess;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  Event e;
  e.number = static_cast<int>(m.events.size());
  e.device = current_device();
  e.timing = !(flags & kEventDisableTiming);
  m.events.push_back(e);
  *event = make_handle<CUevent>(Handle::kEvent, e.number);
  return kCudaSuccess;
}
CUresult cuEventDestroy_v2(CUevent event) {
  TESSERA_DRIVER_CALL;
  Event* const e = event_of(event, __func__);
  if (!e) return kCudaErrorInvalidHandle;
  e->destroyed = true;
  return kCudaSuccess;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  TESSERA_DRIVER_CALL;
  TESSERA_STREAM(stream);
  Event* const e = event_of(event, __func__);
  return e ? machine().record(*e, *s) : kCudaErrorInvalidHandle;
}

// Whether the host may ask an event.
static CUresult askable(const Event& event, const char* call) {
  constexpr CUresult kCapturedEvent = 907;
  if (event.recorded && event.capture >= 0) {
    found(std::string("capture: ") + call + " of an event that was recorded in a capture");
    return kCapturedEvent;
  }
  return machine().may_call(call) ? kCudaSuccess : kCudaErrorStreamCaptureUnsupported;
}
CUresult cuEventQuery(CUevent event) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  Event* const e = event_of(event, __func__);
  if (!e) return kCudaErrorInvalidHandle;
  if (const CUresult r = askable(*e, "cuEventQuery")) return r;
  if (!e->recorded) return kCudaSuccess;
  m.run_some(static_cast<int>(m.random() % 4));
  if (const CUresult r = m.devices[static_cast<size_t>(e->device)].sticky) return r;
  if (m.unfinished.contains(e->last)) return kCudaErrorNotReady;
  m.host_saw(*e);
  return kCudaSuccess;
}
CUresult cuEventSynchronize(CUevent event) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  Event* const e = event_of(event, __func__);
  if (!e) return kCudaErrorInvalidHandle;
  if (const CUresult r = askable(*e, "cuEventSynchronize")) return r;
  if (!e->recorded) return kCudaSuccess;
  const Point end = *e;
  m.run_until(end.last);
  m.host_saw(end);
  return m.devices[static_cast<size_t>(e->device)].sticky;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  TESSERA_DRIVER_CALL;
  const Event *b = event_of(begin, __func__), *e = event_of(end, __func__);
  if (!b || !e || !b->timing || !e->timing || !b->milliseconds || !e->milliseconds) {
    found("cuEventElapsedTime: an event that was not recorded, or that takes no time");
    return kCudaErrorInvalidHandle;
  }
  if (*b->milliseconds < 0 || *e->milliseconds < 0) return kCudaErrorNotReady;
  *milliseconds = static_cast<float>(*e->milliseconds - *b->milliseconds);
  return kCudaSuccess;
}

}  // extern "C"
