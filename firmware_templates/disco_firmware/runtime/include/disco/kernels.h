/*
 * Int8 kernels, equal bit for bit to the TFLite reference kernels (tflite-runtime 2.14, BUILTIN_REF; double rounding).
 * Portable C99, no undefined behaviour. Every kernel computes the output rows [row_begin, row_end) and writes nothing
 * else. Inputs and output may not overlap.
 *
 * Layout: NHWC with a pixel stride. On a node a pixel holds the channels that the node computes followed by the halo channels, so
 * a view names how many leading channels a kernel reads or writes (`channels`) and how many bytes one pixel takes
 * (`stride` >= channels).
 *
 * The parameters come from scales and zero points by disco_firmware/quantisation.py. Zero points and activation bounds
 * lie within int8, multipliers within 0 .. 2^31 - 1, shifts within -31 .. 31.
 */
#ifndef DISCO_KERNELS_H
#define DISCO_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const int8_t *data;
    uint16_t height;
    uint16_t width;
    uint16_t channels; /* leading channels of each pixel to read */
    uint16_t stride;   /* bytes from one pixel to the next */
} disco_input_t;

typedef struct {
    int8_t *data;
    uint16_t height;
    uint16_t width;
    uint16_t channels; /* leading channels of each pixel to write */
    uint16_t stride;   /* bytes from one pixel to the next */
} disco_output_t;

/* Window of a convolution or pooling. Padding is what lies above and to the left; below and right follow from the
 * sizes. What a window covers outside of the input counts as the zero point (pooling: not at all). */
typedef struct {
    uint16_t kernel_h, kernel_w;
    uint16_t stride_h, stride_w;
    uint16_t dilation_h, dilation_w; /* 1 for pooling */
    uint16_t pad_top, pad_left;
} disco_window_t;

/* Accumulator to int8. multiplier: Q31; shift: positive is left (as TFLite's QuantizeMultiplier). One entry per output
 * channel. */
typedef struct {
    const int32_t *multiplier;
    const int8_t *shift;
    int32_t output_zero_point;
    int32_t activation_min;
    int32_t activation_max;
} disco_requantise_t;

/* CONV_2D. weights [out][kernel_h][kernel_w][in]; bias [out] or NULL. TFLite: reference_integer_ops::ConvPerChannel. */
typedef struct {
    disco_window_t window;
    const int8_t *weights;
    const int32_t *bias;
    int32_t input_zero_point;
    disco_requantise_t requantise;
} disco_conv2d_t;
void disco_conv2d_s8(const disco_conv2d_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                     uint16_t row_end);

/* DEPTHWISE_CONV_2D. weights [kernel_h][kernel_w][out], bias [out] or NULL; output channel c reads input channel
 * c / depth_multiplier. TFLite: reference_integer_ops::DepthwiseConvPerChannel. */
typedef struct {
    disco_window_t window;
    const int8_t *weights;
    const int32_t *bias;
    uint16_t depth_multiplier;
    int32_t input_zero_point;
    disco_requantise_t requantise;
} disco_depthwise_conv2d_t;
void disco_depthwise_conv2d_s8(const disco_depthwise_conv2d_t *op, const disco_input_t *in, const disco_output_t *out,
                               uint16_t row_begin, uint16_t row_end);

/* FULLY_CONNECTED, applied to every pixel of the input ([h][w][in] -> [h][w][out]). weights [out][in], bias [out] or
 * NULL; always one multiplier per output channel (equal ones for per-tensor weights).
 * TFLite: reference_integer_ops::FullyConnected(PerChannel). */
typedef struct {
    const int8_t *weights;
    const int32_t *bias;
    int32_t input_zero_point;
    disco_requantise_t requantise;
} disco_fully_connected_t;
void disco_fully_connected_s8(const disco_fully_connected_t *op, const disco_input_t *in, const disco_output_t *out,
                              uint16_t row_begin, uint16_t row_end);

/* ADD of two tensors of one shape. TFLite: reference_integer_ops::Add (left_shift 20). */
typedef struct {
    int32_t input1_zero_point, input2_zero_point, output_zero_point;
    int32_t input1_multiplier, input2_multiplier, output_multiplier;
    int8_t input1_shift, input2_shift, output_shift; /* as QuantizeMultiplier; <= 0 for the inputs */
    int8_t left_shift;                               /* 20 */
    int32_t activation_min, activation_max;
} disco_add_t;
void disco_add_s8(const disco_add_t *op, const disco_input_t *in1, const disco_input_t *in2, const disco_output_t *out,
                  uint16_t row_begin, uint16_t row_end);

/* MUL of two tensors of one shape, or of which one has a single pixel, that counts for all pixels of the other.
 * TFLite: reference_integer_ops::Mul, BroadcastMul4DSlow. */
typedef struct {
    int32_t input1_zero_point, input2_zero_point, output_zero_point;
    int32_t multiplier;
    int8_t shift;
    int32_t activation_min, activation_max;
} disco_mul_t;
void disco_mul_s8(const disco_mul_t *op, const disco_input_t *in1, const disco_input_t *in2, const disco_output_t *out,
                  uint16_t row_begin, uint16_t row_end);

/* AVERAGE_POOL_2D (halves away from zero) and MAX_POOL_2D; every window covers at least one input pixel.
 * TFLite: reference_integer_ops::AveragePool, MaxPool. */
typedef struct {
    disco_window_t window;
    int32_t activation_min, activation_max;
} disco_pool2d_t;
void disco_average_pool2d_s8(const disco_pool2d_t *op, const disco_input_t *in, const disco_output_t *out,
                             uint16_t row_begin, uint16_t row_end);
void disco_max_pool2d_s8(const disco_pool2d_t *op, const disco_input_t *in, const disco_output_t *out,
                         uint16_t row_begin, uint16_t row_end);

/* MEAN over height and width; output [1][1][channels], row range 0..1. TFLite: reference_ops::QuantizedMeanOrSum in
 * integers, with and without keep_dims. */
typedef struct {
    int32_t input_zero_point, output_zero_point;
    int32_t multiplier; /* of the sum over the pixels: 1 / (height * width) is included */
    int8_t shift;
} disco_mean_t;
void disco_mean_s8(const disco_mean_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                   uint16_t row_end);

/* PAD of height and width by `value`. */
typedef struct {
    uint16_t pad_top, pad_left;
    int8_t value;
} disco_pad_t;
void disco_pad_s8(const disco_pad_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                  uint16_t row_end);

/* CONCATENATION along the channels (inputs in order, all with the output's scale and zero point), one call per input:
 * the leading channels of the input go to the output channels from first_channel on. */
typedef struct {
    uint16_t first_channel; /* where this input begins in the output pixel */
} disco_copy_channels_t;
void disco_copy_channels_s8(const disco_copy_channels_t *op, const disco_input_t *in, const disco_output_t *out,
                            uint16_t row_begin, uint16_t row_end);

/* Output channel c of each pixel is input channel index[c]. */
typedef struct {
    const uint16_t *index;
} disco_select_channels_t;
void disco_select_channels_s8(const disco_select_channels_t *op, const disco_input_t *in, const disco_output_t *out,
                              uint16_t row_begin, uint16_t row_end);

/* RESHAPE: the leading channels of all input pixels in order, written to the leading channels of all output pixels in
 * order. Whole tensor. */
void disco_reshape_s8(const disco_input_t *in, const disco_output_t *out);

/* RELU, RELU6, RELU_N1_TO_1 alone: requantise and clamp.
 * TFLite: reference_ops::ReluX. */
typedef struct {
    int32_t input_zero_point, output_zero_point;
    int32_t multiplier;
    int8_t shift;
    int32_t activation_min, activation_max;
} disco_relu_t;
void disco_relu_s8(const disco_relu_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                   uint16_t row_end);

/* SOFTMAX over the channels of each pixel; output scale 1/256, zero point -128.
 * TFLite: reference_ops::Softmax for int8, in fixed point. */
typedef struct {
    int32_t multiplier; /* of beta * input scale, preprocessed as in tflite::PreprocessSoftmaxScaling: Q5.26 */
    int8_t shift;
    int32_t diff_min; /* negative; differences below it count as zero */
} disco_softmax_t;
void disco_softmax_s8(const disco_softmax_t *op, const disco_input_t *in, const disco_output_t *out, uint16_t row_begin,
                      uint16_t row_end);

#ifdef __cplusplus
}
#endif

#endif
