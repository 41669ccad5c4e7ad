# An application of EMR Serverless for lakeingest, the role of its jobs, and a policy for whoever submits them.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.id

  full_name   = "lakeingest-${var.name}"
  name_prefix = substr("${local.full_name}-", 0, 38) # IAM and EventBridge take no longer one

  bucket_arn = "arn:${local.partition}:s3:::${var.bucket}"
  glue       = "arn:${local.partition}:glue:${local.region}:${local.account}"
  secret_arn = var.secret == "" ? aws_secretsmanager_secret.password[0].arn : var.secret
}

resource "aws_s3_bucket" "lake" {
  count  = var.make_bucket ? 1 : 0
  bucket = var.bucket

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "lake" {
  count  = var.make_bucket ? 1 : 0
  bucket = aws_s3_bucket.lake[0].id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "lake" {
  count                   = var.make_bucket ? 1 : 0
  bucket                  = aws_s3_bucket.lake[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# It is empty, because what Terraform puts into a secret is readable in Terraform's state.
resource "aws_secretsmanager_secret" "password" {
  count       = var.secret == "" ? 1 : 0
  name        = "lakeingest/${var.name}"
  description = "The password of the source, as {\"password\": \"…\"}."

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_security_group" "jobs" {
  name_prefix = local.name_prefix
  description = "Jobs of lakeingest. Let this group into the security group of the source, on the port of MySQL."
  vpc_id      = var.vpc

  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_emrserverless_application" "jobs" {
  name          = local.full_name
  type          = "SPARK"
  release_label = var.release
  architecture  = "X86_64"

  auto_start_configuration {
    enabled = true
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = 15
  }

  maximum_capacity {
    cpu    = var.maximum_cpu
    memory = var.maximum_memory
  }

  network_configuration {
    subnet_ids         = var.subnets
    security_group_ids = [aws_security_group.jobs.id]
  }
}

resource "aws_iam_role" "job" {
  name_prefix = local.name_prefix

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "emr-serverless.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_iam_role_policy" "job" {
  name = "lakeingest"
  role = aws_iam_role.job.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "FilesOfJobs"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "${local.bucket_arn}/jobs/*"
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = "s3:PutObject"
        Resource = "${local.bucket_arn}/jobs/logs/*"
      },
      {
        Sid      = "TablesAndState"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        Resource = ["${local.bucket_arn}/warehouse/*", "${local.bucket_arn}/state/*"]
      },
      {
        Sid       = "Names"
        Effect    = "Allow"
        Action    = "s3:ListBucket"
        Resource  = local.bucket_arn
        Condition = { StringLike = { "s3:prefix" = ["jobs/*", "warehouse/*", "state/*"] } }
      },
      {
        Sid    = "Catalog"
        Effect = "Allow"
        Action = [
          "glue:GetDatabase",
          "glue:GetDatabases",
          "glue:CreateDatabase",
          "glue:GetTable",
          "glue:GetTables",
          "glue:CreateTable",
          "glue:UpdateTable",
        ]
        Resource = [
          "${local.glue}:catalog",
          "${local.glue}:database/${var.glue_databases}",
          "${local.glue}:table/${var.glue_databases}/*",
        ]
      },
      {
        Sid    = "TablesThatAreBuilt" # no table that readers see has such a name
        Effect = "Allow"
        Action = "glue:DeleteTable"
        Resource = [
          "${local.glue}:catalog",
          "${local.glue}:database/${var.glue_databases}",
          "${local.glue}:table/${var.glue_databases}/*__lakeingest_new*",
        ]
      },
      {
        Sid      = "Password"
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = local.secret_arn
      },
    ]
  })
}

resource "aws_iam_policy" "submit" {
  name_prefix = local.name_prefix
  description = "For whoever runs lakeingest submit emr-serverless"

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
        Sid      = "Follow"
        Effect   = "Allow"
        Action   = ["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"]
        Resource = "${aws_emrserverless_application.jobs.arn}/jobruns/*"
      },
      {
        Sid       = "Role"
        Effect    = "Allow"
        Action    = "iam:PassRole"
        Resource  = aws_iam_role.job.arn
        Condition = { StringEquals = { "iam:PassedToService" = "emr-serverless.amazonaws.com" } }
      },
      {
        Sid      = "Upload"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]
        Resource = "${local.bucket_arn}/jobs/*"
      },
      {
        Sid      = "Outcome"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "${local.bucket_arn}/state/*/last_run*.json"
      },
      {
        Sid       = "Names"
        Effect    = "Allow"
        Action    = "s3:ListBucket"
        Resource  = local.bucket_arn
        Condition = { StringLike = { "s3:prefix" = ["jobs/*", "state/*"] } }
      },
    ]
  })
}
