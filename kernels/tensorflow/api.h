// The few functions of TensorFlow's C API that the ops use, looked up in the framework library
// that Python has loaded. So the build needs no TensorFlow, and one binary fits every version.
// Declarations: tensorflow/c/{kernels,ops,tf_tensor,tf_status}.h.
#pragma once

#include <cstddef>
#include <cstdint>

struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_AsyncOpKernelDoneCallback;

namespace tnt::tf {

enum DataType : int {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_UINT8 = 4,
  TF_INT64 = 9,
  TF_BFLOAT16 = 14,
  TF_HALF = 19,
};
enum Code : int { TF_OK = 0, TF_DEADLINE_EXCEEDED = 4, TF_ABORTED = 10, TF_INTERNAL = 13 };

// clang-format off
#define TNT_TF_FUNCTIONS(F) \
  F(TF_Status*, TF_NewStatus, ()) \
  F(void, TF_DeleteStatus, (TF_Status*)) \
  F(void, TF_SetStatus, (TF_Status*, Code, const char*)) \
  F(Code, TF_GetCode, (const TF_Status*)) \
  F(const char*, TF_Message, (const TF_Status*)) \
  F(void, TF_DeleteTensor, (TF_Tensor*)) \
  F(void*, TF_TensorData, (const TF_Tensor*)) \
  F(size_t, TF_DataTypeSize, (DataType)) \
  F(size_t, TF_TensorByteSize, (const TF_Tensor*)) \
  F(int, TF_NumDims, (const TF_Tensor*)) \
  F(int64_t, TF_Dim, (const TF_Tensor*, int)) \
  F(int, TF_NumInputs, (TF_OpKernelContext*)) \
  F(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*)) \
  F(DataType, TF_InputDatatype, (TF_OpKernelContext*, int)) \
  F(TF_Tensor*, TF_AllocateOutput, (TF_OpKernelContext*, int, DataType, const int64_t*, int, size_t, TF_Status*)) \
  F(TF_Tensor*, TF_ForwardInputOrAllocateOutput, (TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*, TF_Status*)) \
  F(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*)) \
  F(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrInt64List, (TF_OpKernelConstruction*, const char*, int64_t*, int, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrType, (TF_OpKernelConstruction*, const char*, DataType*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrSize, (TF_OpKernelConstruction*, const char*, int32_t*, int32_t*, TF_Status*)) \
  F(void, TF_OpKernelConstruction_GetAttrString, (TF_OpKernelConstruction*, const char*, char*, size_t, TF_Status*)) \
  F(TF_KernelBuilder*, TF_NewKernelBuilder, (const char*, const char*, void* (*)(TF_OpKernelConstruction*), void (*)(void*, TF_OpKernelContext*), void (*)(void*))) \
  F(TF_KernelBuilder*, TF_NewAsyncKernelBuilder, (const char*, const char*, void* (*)(TF_OpKernelConstruction*), void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*), void (*)(void*))) \
  F(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*)) \
  F(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*)) \
  F(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*)) \
  F(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*)) \
  F(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*)) \
  F(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*)) \
  F(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool)) \
  F(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*))) \
  F(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*)) \
  F(TF_ShapeHandle*, TF_NewShapeHandle, ()) \
  F(void, TF_DeleteShapeHandle, (TF_ShapeHandle*)) \
  F(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*)) \
  F(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*)) \
  F(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))
// clang-format on

#define TNT_TF_DECLARE(RESULT, NAME, ARGUMENTS) extern RESULT(*NAME) ARGUMENTS;
TNT_TF_FUNCTIONS(TNT_TF_DECLARE)
#undef TNT_TF_DECLARE

// Finds all of the above. Null, or the name of the first function that is missing.
const char* resolve();

}  // namespace tnt::tf
