// What is declared of PJRT's interface, against its own header.
#include "backends/xla/pjrt_api.h"

#include <gtest/gtest.h>

#include "backends/xla/pjrt_topology.h"

#if __has_include(<pjrt_c_api.h>)
#include <pjrt_c_api.h>

namespace tessera::xla::pjrt {

#define EXPECT_FUNCTION(ours, theirs)                                           \
  static_assert(offsetof(Api, functions) +                                      \
                    static_cast<size_t>(Function::ours) * sizeof(Api::Entry) == \
                offsetof(PJRT_Api, theirs))
EXPECT_FUNCTION(kErrorDestroy, PJRT_Error_Destroy);
EXPECT_FUNCTION(kErrorMessage, PJRT_Error_Message);
EXPECT_FUNCTION(kErrorGetCode, PJRT_Error_GetCode);
EXPECT_FUNCTION(kPluginInitialize, PJRT_Plugin_Initialize);
EXPECT_FUNCTION(kEventDestroy, PJRT_Event_Destroy);
EXPECT_FUNCTION(kEventAwait, PJRT_Event_Await);
EXPECT_FUNCTION(kClientCreate, PJRT_Client_Create);
EXPECT_FUNCTION(kClientDestroy, PJRT_Client_Destroy);
EXPECT_FUNCTION(kClientPlatformName, PJRT_Client_PlatformName);
EXPECT_FUNCTION(kClientPlatformVersion, PJRT_Client_PlatformVersion);
EXPECT_FUNCTION(kClientAddressableDevices, PJRT_Client_AddressableDevices);
EXPECT_FUNCTION(kClientCompile, PJRT_Client_Compile);
EXPECT_FUNCTION(kClientBufferFromHostBuffer, PJRT_Client_BufferFromHostBuffer);
EXPECT_FUNCTION(kExecutableDestroy, PJRT_Executable_Destroy);
EXPECT_FUNCTION(kExecutableNumOutputs, PJRT_Executable_NumOutputs);
EXPECT_FUNCTION(kExecutableSerialize, PJRT_Executable_Serialize);
EXPECT_FUNCTION(kLoadedExecutableDestroy, PJRT_LoadedExecutable_Destroy);
EXPECT_FUNCTION(kLoadedExecutableGetExecutable, PJRT_LoadedExecutable_GetExecutable);
EXPECT_FUNCTION(kLoadedExecutableExecute, PJRT_LoadedExecutable_Execute);
EXPECT_FUNCTION(kExecutableDeserializeAndLoad, PJRT_Executable_DeserializeAndLoad);
EXPECT_FUNCTION(kBufferDestroy, PJRT_Buffer_Destroy);
EXPECT_FUNCTION(kBufferToHostBuffer, PJRT_Buffer_ToHostBuffer);
EXPECT_FUNCTION(kExecutableOptimizedProgram, PJRT_Executable_OptimizedProgram);
EXPECT_FUNCTION(kTopologyCreate, PJRT_TopologyDescription_Create);
EXPECT_FUNCTION(kTopologyDestroy, PJRT_TopologyDescription_Destroy);
EXPECT_FUNCTION(kCompile, PJRT_Compile);
#undef EXPECT_FUNCTION

// The last field that is used of each struct, and so all before it.
#define EXPECT_FIELD(ours, field, theirs, their_field) \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field))
EXPECT_FIELD(Api, minor_version, PJRT_Api, pjrt_api_version.minor_version);
EXPECT_FIELD(NamedValue, value_size, PJRT_NamedValue, value_size);
EXPECT_FIELD(ErrorDestroy, error, PJRT_Error_Destroy_Args, error);
EXPECT_FIELD(ErrorMessage, message_size, PJRT_Error_Message_Args, message_size);
EXPECT_FIELD(ErrorGetCode, code, PJRT_Error_GetCode_Args, code);
EXPECT_FIELD(EventDestroy, event, PJRT_Event_Destroy_Args, event);
EXPECT_FIELD(EventAwait, event, PJRT_Event_Await_Args, event);
EXPECT_FIELD(ClientCreate, kv_try_get_argument, PJRT_Client_Create_Args, kv_try_get_user_arg);
EXPECT_FIELD(ClientCreate, client, PJRT_Client_Create_Args, client);
EXPECT_FIELD(KeyValueGet, delete_value, PJRT_KeyValueGetCallback_Args, value_deleter_callback);
EXPECT_FIELD(KeyValueGet, make_error, PJRT_KeyValueGetCallback_Args, callback_error);
EXPECT_FIELD(KeyValueTryGet, delete_value, PJRT_KeyValueTryGetCallback_Args,
             value_deleter_callback);
EXPECT_FIELD(KeyValueTryGet, user_argument, PJRT_KeyValueTryGetCallback_Args, user_arg);
EXPECT_FIELD(KeyValuePut, user_argument, PJRT_KeyValuePutCallback_Args, user_arg);
EXPECT_FIELD(KeyValuePut, value_size, PJRT_KeyValuePutCallback_Args, value_size);
EXPECT_FIELD(ClientDestroy, client, PJRT_Client_Destroy_Args, client);
EXPECT_FIELD(ClientText, text_size, PJRT_Client_PlatformName_Args, platform_name_size);
EXPECT_FIELD(ClientText, text_size, PJRT_Client_PlatformVersion_Args, platform_version_size);
EXPECT_FIELD(ClientAddressableDevices, num_devices, PJRT_Client_AddressableDevices_Args,
             num_addressable_devices);
EXPECT_FIELD(Program, format_size, PJRT_Program, format_size);
EXPECT_FIELD(ClientCompile, executable, PJRT_Client_Compile_Args, executable);
EXPECT_FIELD(ClientBufferFromHostBuffer, host_memory, PJRT_Client_BufferFromHostBuffer_Args,
             host_buffer_semantics);
EXPECT_FIELD(ClientBufferFromHostBuffer, buffer, PJRT_Client_BufferFromHostBuffer_Args, buffer);
EXPECT_FIELD(ExecutableDestroy, executable, PJRT_Executable_Destroy_Args, executable);
EXPECT_FIELD(ExecutableNumOutputs, num_outputs, PJRT_Executable_NumOutputs_Args, num_outputs);
EXPECT_FIELD(ExecutableSerialize, destroy, PJRT_Executable_Serialize_Args,
             serialized_executable_deleter);
EXPECT_FIELD(LoadedExecutableDestroy, executable, PJRT_LoadedExecutable_Destroy_Args, executable);
EXPECT_FIELD(LoadedExecutableGetExecutable, executable, PJRT_LoadedExecutable_GetExecutable_Args,
             executable);
EXPECT_FIELD(ExecuteOptions, num_not_donated, PJRT_ExecuteOptions, num_non_donatable_input_indices);
EXPECT_FIELD(LoadedExecutableExecute, device, PJRT_LoadedExecutable_Execute_Args, execute_device);
EXPECT_FIELD(ExecutableDeserializeAndLoad, executable, PJRT_Executable_DeserializeAndLoad_Args,
             loaded_executable);
EXPECT_FIELD(BufferDestroy, buffer, PJRT_Buffer_Destroy_Args, buffer);
EXPECT_FIELD(BufferToHostBuffer, event, PJRT_Buffer_ToHostBuffer_Args, event);
EXPECT_FIELD(TopologyCreate, topology, PJRT_TopologyDescription_Create_Args, topology);
EXPECT_FIELD(TopologyDestroy, topology, PJRT_TopologyDescription_Destroy_Args, topology);
EXPECT_FIELD(Compile, executable, PJRT_Compile_Args, executable);
EXPECT_FIELD(ExecutableOptimizedProgram, program, PJRT_Executable_OptimizedProgram_Args, program);
EXPECT_FIELD(BufferUnsafePointer, address, PJRT_Buffer_UnsafePointer_Args, buffer_pointer);
EXPECT_FIELD(ExecutableGetCompiledMemoryStats, temporaries,
             PJRT_Executable_GetCompiledMemoryStats_Args, temp_size_in_bytes);
EXPECT_FIELD(ExecutableGetCompiledMemoryStats, host_temporaries,
             PJRT_Executable_GetCompiledMemoryStats_Args, host_temp_size_in_bytes);
#undef EXPECT_FIELD

#define EXPECT_NUMBER(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
EXPECT_NUMBER(ElementType::kPred, PJRT_Buffer_Type_PRED);
EXPECT_NUMBER(ElementType::kI32, PJRT_Buffer_Type_S32);
EXPECT_NUMBER(ElementType::kI64, PJRT_Buffer_Type_S64);
EXPECT_NUMBER(ElementType::kF16, PJRT_Buffer_Type_F16);
EXPECT_NUMBER(ElementType::kF32, PJRT_Buffer_Type_F32);
EXPECT_NUMBER(ElementType::kF64, PJRT_Buffer_Type_F64);
EXPECT_NUMBER(ElementType::kBF16, PJRT_Buffer_Type_BF16);
EXPECT_NUMBER(HostMemory::kCopiedDuringCall, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
EXPECT_NUMBER(HostMemory::kMutableZeroCopy, PJRT_HostBufferSemantics_kMutableZeroCopy);
EXPECT_NUMBER(NamedValue::Type::kI64, PJRT_NamedValue_kInt64);
EXPECT_NUMBER(NamedValue::Type::kI64List, PJRT_NamedValue_kInt64List);
EXPECT_NUMBER(ErrorCode::kNotFound, PJRT_Error_Code_NOT_FOUND);
EXPECT_NUMBER(ErrorCode::kInternal, PJRT_Error_Code_INTERNAL);
EXPECT_NUMBER(ErrorCode::kResourceExhausted, PJRT_Error_Code_RESOURCE_EXHAUSTED);
EXPECT_NUMBER(ErrorCode::kUnimplemented, PJRT_Error_Code_UNIMPLEMENTED);
#undef EXPECT_NUMBER

TEST(PjrtApi, IsThatOfTheHeader) { SUCCEED() << "compared while this was compiled"; }

}  // namespace tessera::xla::pjrt

#else

TEST(PjrtApi, IsThatOfTheHeader) {
  GTEST_SKIP() << "no pjrt_c_api.h: give cmake -DTESSERA_PJRT_HEADER=DIR, from a plug-in's package";
}

#endif
