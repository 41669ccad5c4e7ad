# Starts the job again and again, and tells people when that fails or stops. All of it waits for `request`.

locals {
  scheduled = var.request == null ? 0 : 1
  request   = var.request == null ? null : jsondecode(var.request)

  # The request in the letters of EventBridge Scheduler. The keys of tags and properties are ours.
  start = var.request == null ? null : {
    ApplicationId           = local.request.applicationId
    ExecutionRoleArn        = local.request.executionRoleArn
    Name                    = local.request.name
    Tags                    = local.request.tags
    ExecutionTimeoutMinutes = try(local.request.executionTimeoutMinutes, var.max_minutes)
    JobDriver = {
      SparkSubmit = {
        EntryPoint            = local.request.jobDriver.sparkSubmit.entryPoint
        EntryPointArguments   = local.request.jobDriver.sparkSubmit.entryPointArguments
        SparkSubmitParameters = local.request.jobDriver.sparkSubmit.sparkSubmitParameters
      }
    }
    ConfigurationOverrides = {
      ApplicationConfiguration = [
        for one in local.request.configurationOverrides.applicationConfiguration :
        { Classification = one.classification, Properties = one.properties }
      ]
      MonitoringConfiguration = {
        S3MonitoringConfiguration = {
          LogUri = local.request.configurationOverrides.monitoringConfiguration.s3MonitoringConfiguration.logUri
        }
      }
    }
  }
}

resource "aws_sns_topic" "people" {
  count       = local.scheduled
  name_prefix = "${local.full_name}-"
}

resource "aws_sns_topic_subscription" "people" {
  count     = local.scheduled
  topic_arn = aws_sns_topic.people[0].arn
  protocol  = "email"
  endpoint  = var.email

  lifecycle {
    precondition {
      condition     = var.email != null
      error_message = "A schedule needs an email: nobody would be told that jobs fail."
    }
  }
}

resource "aws_sns_topic_policy" "people" {
  count = local.scheduled
  arn   = aws_sns_topic.people[0].arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "Rules"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sns:Publish"
        Resource  = aws_sns_topic.people[0].arn
        Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.failed[0].arn } }
      },
      {
        Sid       = "Alarms"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = "sns:Publish"
        Resource  = aws_sns_topic.people[0].arn
        Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
      },
    ]
  })
}

resource "aws_scheduler_schedule_group" "jobs" {
  count = local.scheduled
  name  = local.full_name
}

resource "aws_scheduler_schedule" "start" {
  count               = local.scheduled
  name                = local.full_name
  group_name          = aws_scheduler_schedule_group.jobs[0].name
  schedule_expression = var.schedule

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = "arn:${local.partition}:scheduler:::aws-sdk:emrserverless:startJobRun"
    role_arn = aws_iam_role.start[0].arn
    # jsonencode would write < and > of the token as escapes, which the Scheduler does not find.
    input = "{\"ClientToken\":\"<aws.scheduler.execution-id>\",${substr(jsonencode(local.start), 1, -1)}"

    retry_policy {
      maximum_retry_attempts       = 3
      maximum_event_age_in_seconds = 600
    }
  }

  lifecycle {
    precondition {
      condition     = local.request.applicationId == aws_emrserverless_application.jobs.id && local.request.executionRoleArn == aws_iam_role.job.arn
      error_message = "The request is for another application or role than those of this module: write its outputs into submit.emr-serverless, and make the request again."
    }
  }
}

resource "aws_iam_role" "start" {
  count       = local.scheduled
  name_prefix = local.name_prefix

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "scheduler.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_iam_role_policy" "start" {
  count = local.scheduled
  name  = "start"
  role  = aws_iam_role.start[0].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid    = "Jobs"
        Effect = "Allow"
        Action = ["emr-serverless:StartJobRun", "emr-serverless:TagResource"]
        Resource = [
          aws_emrserverless_application.jobs.arn,
          "${aws_emrserverless_application.jobs.arn}/jobruns/*",
        ]
      },
      {
        Sid       = "Role"
        Effect    = "Allow"
        Action    = "iam:PassRole"
        Resource  = aws_iam_role.job.arn
        Condition = { StringEquals = { "iam:PassedToService" = "emr-serverless.amazonaws.com" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "failed" {
  count       = local.scheduled
  name_prefix = local.name_prefix
  description = "A job has failed or was cancelled."

  event_pattern = jsonencode({
    source      = ["aws.emr-serverless"]
    detail-type = ["EMR Serverless Job Run State Change"]
    detail      = { applicationId = [aws_emrserverless_application.jobs.id], state = ["FAILED", "CANCELLED"] }
  })
}

resource "aws_cloudwatch_event_target" "failed" {
  count     = local.scheduled
  rule      = aws_cloudwatch_event_rule.failed[0].name
  target_id = "people"
  arn       = aws_sns_topic.people[0].arn

  input_transformer {
    input_paths    = { job = "$.detail.jobRunId", state = "$.detail.state" }
    input_template = "\"lakeingest ${var.name}: job <job> is <state>. last_run.json in the state has the error: lakeingest explain NAME\""
  }
}

# Its number of invocations is a metric.
resource "aws_cloudwatch_event_rule" "succeeded" {
  count       = local.scheduled
  name_prefix = local.name_prefix
  description = "A job has ended well."

  event_pattern = jsonencode({
    source      = ["aws.emr-serverless"]
    detail-type = ["EMR Serverless Job Run State Change"]
    detail      = { applicationId = [aws_emrserverless_application.jobs.id], state = ["SUCCESS"] }
  })
}

resource "aws_cloudwatch_event_target" "succeeded" {
  count     = local.scheduled
  rule      = aws_cloudwatch_event_rule.succeeded[0].name
  target_id = "log"
  arn       = aws_cloudwatch_log_group.succeeded[0].arn
}

resource "aws_cloudwatch_log_group" "succeeded" {
  count             = local.scheduled
  name              = "/aws/events/${local.full_name}"
  retention_in_days = 30
}

resource "aws_cloudwatch_log_resource_policy" "succeeded" {
  count       = local.scheduled
  policy_name = local.full_name

  policy_document = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Rules"
      Effect    = "Allow"
      Principal = { Service = ["events.amazonaws.com", "delivery.logs.amazonaws.com"] }
      Action    = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Resource  = "${aws_cloudwatch_log_group.succeeded[0].arn}:*"
    }]
  })
}

resource "aws_cloudwatch_metric_alarm" "no_success" {
  count               = local.scheduled
  alarm_name          = "${local.full_name}-no-success"
  alarm_description   = "No job of lakeingest ${var.name} has ended well for ${var.quiet_hours} hours. `lakeingest status` says how old the copies are."
  namespace           = "AWS/Events"
  metric_name         = "Invocations"
  dimensions          = { RuleName = aws_cloudwatch_event_rule.succeeded[0].name }
  statistic           = "Sum"
  period              = 3600
  evaluation_periods  = var.quiet_hours
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching" # the metric has no zeros
  alarm_actions       = [aws_sns_topic.people[0].arn]
  ok_actions          = [aws_sns_topic.people[0].arn]
}

resource "aws_cloudwatch_metric_alarm" "not_started" {
  count               = local.scheduled
  alarm_name          = "${local.full_name}-not-started"
  alarm_description   = "EventBridge Scheduler could not start a job of lakeingest ${var.name}, and has given up."
  namespace           = "AWS/Scheduler"
  metric_name         = "InvocationDroppedCount"
  dimensions          = { ScheduleGroup = aws_scheduler_schedule_group.jobs[0].name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.people[0].arn]
}
